"""A sharded model for inference: plain parameters, direct collectives and no hooks, so that a token costs little Python.

After ``apply``, parameters have roles that intercept every function called with them. This serves gradients and unusual
code, but costs about ten microseconds an operation, and ``torch.compile`` cannot trace it. Without gradients a
column-wise weight needs no role, and a row-wise weight needs a sum in its module's forward. So standard modules get a
subclass of their class with such a forward; all other code that reads ``module.weight`` gets the parameter with its role.

Small sums over the devices of one host are one kernel that reads the other devices' memory. A decoded token needs two
sums a layer of a few kilobytes each. Through NCCL one took 14 microseconds of the processor's time and 16 in all on two
H200, through symmetric memory 8: with 65 of them a token, two milliseconds of twenty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise, repeat
from operator import is_
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from modular_converter.parallel import torch_private
from modular_converter.parallel.inference.experts import fuse_experts
from modular_converter.parallel.inference.fused import fuse_activations, fuse_norms
from modular_converter.parallel.inference.generation import choose_cache
from modular_converter.parallel.int8 import Int8Linear
from modular_converter.parallel.shard.apply import Applied, attach
from modular_converter.parallel.shard.collectives import ProcessGroup, options_of
from modular_converter.parallel.shard.forwards import called_alone, conv1d_product, is_conv1d, swap_forward
from modular_converter.parallel.styles.forward import looked_up, product_of
from modular_converter.parallel.styles.layout import GATHER_OVER_RANKS, Enters, Side, WeightLayout
from modular_converter.parallel.torch_private import AllgatherOptions, AllreduceOptions, traced_collectives


LIMIT_BYTES = 128 << 10
"""Up to this size; above it NCCL's rings move fewer bytes."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class SmallSums:
    """A buffer for each type that all ranks of a group can read. All ranks make it together, in ``open_small_sums``."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device, dtypes: tuple[torch.dtype, ...]) -> None:
        symmetric = torch_private.symmetric_memory
        self.name: str = group.group_name
        self.sum: Any = torch.ops.symm_mem.one_shot_all_reduce_copy
        self.buffers: dict[torch.dtype, torch.Tensor] = {}
        for dtype in dtypes:
            buffer = symmetric.empty(LIMIT_BYTES // dtype.itemsize, dtype=dtype, device=device)
            symmetric.rendezvous(buffer, group)
            self.buffers[dtype] = buffer
        self.views: dict[tuple[torch.dtype, int], torch.Tensor] = {}

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is small enough, contiguous, and a multiple of 16 bytes long."""
        size = tensor.numel() * tensor.element_size()
        return size <= LIMIT_BYTES and size % 16 == 0 and tensor.dtype in self.buffers and tensor.is_contiguous()

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, as a new tensor."""
        key = (tensor.dtype, tensor.numel())
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = self.buffers[tensor.dtype][: tensor.numel()]
        summed: torch.Tensor = self.sum(view, tensor.view(-1), "sum", self.name)
        return summed.view(tensor.shape)


def open_small_sums(group: dist.ProcessGroup, device: torch.device) -> SmallSums | None:
    """The sums of a group, for the types that work on all ranks; None if no type does. All ranks must call it."""
    made = None
    try:
        made = SmallSums(group, device, DTYPES)
        right = [_is_right(made, dtype, group) for dtype in DTYPES]
    except Exception:  # no peer access, another host, a build without it: NCCL sums then
        right = [False] * len(DTYPES)
    all_right = torch.tensor(right, dtype=torch.int32, device=device)
    dist.all_reduce(all_right, dist.ReduceOp.MIN, group)
    agreed = {dtype for dtype, one in zip(DTYPES, all_right.tolist()) if one}
    if made is not None:
        made.buffers = {dtype: buffer for dtype, buffer in made.buffers.items() if dtype in agreed}
    return made if agreed else None


def _is_right(sums: SmallSums, dtype: torch.dtype, group: dist.ProcessGroup) -> bool:
    """Whether the kernel sums this type; torch 2.11 has no kernel for float16."""
    trial = torch.full((8,), 1.0, dtype=dtype, device=sums.buffers[dtype].device)
    try:
        return bool((sums(trial) == dist.get_world_size(group)).all())
    except NotImplementedError:
        return False


# A product with an output of this size or more is computed in pieces: each is summed while the next is computed. On two
# H100 pieces cost more than they hid at 32 MiB (34 instead of 30 ms for a forward of bert) and at 80 (172 and 169, gemma3).
OVERLAP_BYTES = 128 << 20
OVERLAP_PIECES = 4


class DirectGroup(ProcessGroup):
    """Collectives without gradients and with as little Python as possible; ``torch.compile`` can trace them."""

    def __init__(self, group: dist.ProcessGroup | None = None, meet: Callable[[], None] = lambda: None) -> None:
        super().__init__(group, meet)
        self.name: str = self.handle.group_name
        self.later = options_of(AllreduceOptions(), True)
        self.gather_options = options_of(AllgatherOptions(), False)
        self.overlaps = dist.get_backend(group) == "nccl"
        self.small = (
            open_small_sums(self.handle, torch.device("cuda", torch.cuda.current_device())) if self.overlaps else None
        )

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The all-reduce of a tensor: in place, or for small tensors in a new tensor."""
        if torch.compiler.is_dynamo_compiling():  # half the calls of `is_compiling`
            functions = traced_collectives
            summed: torch.Tensor = functions.wait_tensor(functions.all_reduce(tensor, "sum", self.name))
            return summed
        self.meet()
        if self.small is not None and self.small.fits(tensor):
            return self.small(tensor)
        self.reduce_in_place(tensor)
        return tensor

    def sum_later(self, tensor: torch.Tensor) -> Any:
        """Begin an all-reduce in place. Returns the work; its ``wait`` makes the current stream wait."""
        self.meet()
        return self.handle.allreduce([tensor], self.later)

    def enter(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor itself: there are no gradients to sum."""
        return value

    def sum_of_product(
        self, function: Callable[..., torch.Tensor], input: torch.Tensor, weight: torch.Tensor, bias: Any
    ) -> torch.Tensor:
        """The summed product, in which the first rank's term has the bias; a large one in pieces, see ``OVERLAP_BYTES``."""
        bias = bias if self.rank == 0 else None
        if self.overlaps and function is F.linear and not torch.compiler.is_compiling():
            rows = input.numel() // input.shape[-1]
            if rows * weight.shape[0] * input.element_size() >= OVERLAP_BYTES:
                return _overlapped(input.reshape(rows, -1), weight.t(), bias, self).view(*input.shape[:-1], -1)
        return self.sum(function(input, weight, bias))

    def gather(self, tensor: torch.Tensor, dim: int = -1, borders: Sequence[int] = ()) -> torch.Tensor:
        """The all-gather along the last dimension; shorter shares are padded.

        Args:
            borders: the first entry of each rank, then the whole length; may be omitted for equal shares.
        """
        assert dim == -1
        lengths = [last - first for first, last in pairwise(borders)]
        uneven = len(set(lengths)) > 1
        if uneven:
            tensor = F.pad(tensor, (0, max(lengths) - tensor.shape[-1]))
        flat = tensor.reshape(-1)
        if torch.compiler.is_dynamo_compiling():
            functions = traced_collectives
            found = functions.wait_tensor(functions.all_gather_into_tensor(flat, self.size, self.name))
        else:
            self.meet()
            found = tensor.new_empty(self.size * flat.numel())
            work = self.handle._allgather_base(found, flat, self.gather_options)
            if work is not None:
                work.wait()
        shares: torch.Tensor = found.view(self.size, *tensor.shape)
        if uneven:
            return torch.cat([shares[rank, ..., :length] for rank, length in enumerate(lengths)], -1)
        whole: torch.Tensor = shares.movedim(0, -2).flatten(-2)
        return whole


class _PlainForward(torch.nn.Module):
    """Base of the forwards below. Code outside of them gets the weight with its role as ``weight``."""

    _function: Callable[..., torch.Tensor]
    _plain_product: Callable[..., torch.Tensor]
    _plain_group: DirectGroup
    _plain_borders: tuple[int, ...]
    _shares: dict[str, Any]

    @property
    def weight(self) -> Any:
        return self.__dict__["_plain_role"]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if type(input) is not torch.Tensor:  # a parameter with a role as input would sum the product a second time
            input = input.as_subclass(torch.Tensor)
        own = self._parameters
        if "_shares" in self.__dict__:  # in a process group, ``_parameters`` has the weights that other code sees
            if (
                not torch.compiler.is_compiling()
                and not self.__dict__["_plain_layout"].whole_outside
                and called_alone(self)
            ):
                return self._function(input, own["weight"], own.get("bias"))
            own = self._shares
        return self._plain_product(self._function, input, own["weight"], own.get("bias"))


class _Linear(_PlainForward, torch.nn.Linear):  # type: ignore[override]
    _function = staticmethod(F.linear)


class _Conv1D(_PlainForward):
    _function = staticmethod(conv1d_product)


class _Int8Linear(_PlainForward, Int8Linear):  # type: ignore[override]
    def _function(self, input: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        return self.product(input, weight)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.finished(super().forward(input), input)


class _VocabularyEmbedding(_PlainForward, torch.nn.Embedding):  # type: ignore[override]
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        own = self._shares if "_shares" in self.__dict__ else self._parameters
        found: torch.Tensor = looked_up(self._plain_group, self._plain_borders, input, own["weight"])
        return found


class _SummedOutput(torch.nn.Module):
    """Put before a module's class: its output, or the first of several outputs, is a partial sum and is summed."""

    _plain_group: DirectGroup

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = super().forward(*args, **kwargs)
        share = result if isinstance(result, torch.Tensor) else result[0]
        passed_on = any(map(is_, repeat(share), (*args, *kwargs.values())))  # sums can be in place
        whole = self._plain_group.sum(share.clone() if passed_on else share.contiguous())
        return whole if share is result else (whole, *result[1:])


def _overlapped(rows: torch.Tensor, weight: torch.Tensor, bias: Any, group: DirectGroup) -> torch.Tensor:
    found = rows.new_empty(rows.shape[0], weight.shape[1])
    works = []
    for piece, source in zip(found.chunk(OVERLAP_PIECES), rows.chunk(OVERLAP_PIECES)):
        if bias is None:
            torch.mm(source, weight, out=piece)
        else:
            torch.addmm(bias, source, weight, out=piece)
        works.append(group.sum_later(piece))
    for work in works:
        work.wait()
    return found


def make_plain(applied: Applied, group: DirectGroup) -> None:
    """Turn a sharded model into its form for inference, in place, without gradients.

    In other modules and roles than the known ones, parameters keep their role.
    """
    for handle in applied.handles:
        handle.remove()
    plain: dict[int, torch.nn.Parameter] = {}
    done: set[tuple[int, str]] = set()
    for name, piece in applied.resolution.pieces.items():
        path, _, leaf = name.rpartition(".")
        module = applied.model.get_submodule(path)
        if (id(module), leaf) in done:  # a module with several names
            continue
        done.add((id(module), leaf))
        old: Any = module._parameters[leaf]
        silent = all(role.leaves is None for role in piece.roles)
        products = [role for role in piece.roles if not role.of_table]
        kind = None if silent else _kind_of(module, leaf, piece.roles, products, bool(piece.parts))
        if kind is None and not silent:
            continue
        if id(old) not in plain:
            plain[id(old)] = torch.nn.Parameter(old.detach().as_subclass(torch.Tensor), requires_grad=False)
        if kind is not None:
            module.__dict__["_plain_role"], module.__dict__["_plain_borders"] = old, old.borders
            if products:
                module.__dict__["_plain_layout"] = products[0]
                module.__dict__["_plain_product"] = product_of(products[0], group, old.borders)
            _swap(module, kind, group)
        module._parameters[leaf] = plain[id(old)]
    _sum_outputs(applied, group)


def put_on_modules(model: torch.nn.Module) -> list[Any]:
    """The objects that ``make_plain`` has put on modules, which no forward changes."""
    return [value for module in model.modules() for name, value in vars(module).items() if name.startswith("_plain_")]


def _sum_outputs(applied: Applied, group: DirectGroup) -> None:
    """Apply layouts of modules, after those of weights, so that the sum includes a module's new forward."""
    for path, layout in applied.resolution.hooks:
        if layout.enters is Enters.ROUTES:
            attach(applied, path, layout, group)
        elif layout.leaves is not None:
            _swap(applied.model.get_submodule(path), _SummedOutput, group)


def _kind_of(
    module: torch.nn.Module, leaf: str, roles: Collection[WeightLayout], products: Sequence[WeightLayout], packed: bool
) -> type[Any] | None:
    """The forward for a module's weight; None if the weight must keep its role."""
    if leaf != "weight" or len(products) > 1:
        return None
    if isinstance(module, torch.nn.Embedding) and any(role.of_table for role in roles):
        return _VocabularyEmbedding if getattr(module, "max_norm", None) is None else None
    rows = any(role.cut is Side.INPUT for role in products)
    if not rows and (packed or not any(role.leaves is GATHER_OVER_RANKS for role in products)):
        return None
    if isinstance(module, Int8Linear):
        return _Int8Linear if rows else None
    if isinstance(module, torch.nn.Linear):
        return _Linear
    return _Conv1D if any(map(is_conv1d, type(module).__mro__)) else None


def _swap(module: torch.nn.Module, kind: type[Any], group: DirectGroup) -> None:
    """Give a module another forward; ``_SummedOutput`` acts on the output of the whole class."""
    swap_forward(module, kind, outermost=kind is _SummedOutput)
    module.__dict__["_plain_group"] = group


def make_inference(applied: Applied, group: DirectGroup, compile: bool) -> None:
    """Turn a sharded model into its form for inference, in place.

    Args:
        compile: ``generate`` has a static cache unless a cache is given.
    """
    model = applied.model
    fuse_experts(model)  # before the sums of outputs, which are put around forwards
    make_plain(applied, group)
    fuse_norms(model)
    fuse_activations(model)
    model.eval().requires_grad_(False)
    if compile:
        choose_cache(model, {})
