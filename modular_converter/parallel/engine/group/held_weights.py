"""How a process holds the weights of a sharded model: DTensors for torch's tools, local tensors for the model's code.

``module._parameters`` has the DTensors, for optimizers, ``fully_shard`` and ``clip_grad_norm_``. The module gets a class
of its own with a property for each weight, as in torch's parametrizations: in a forward it gives this process's tensor
with its role, and the DTensor to any other code, which would take a share for the whole weight.

A plain linear layer computes on its share without a tensor that intercepts calls. Interception costs ten microseconds a
call, and ``torch.compile`` cannot trace it. All other code that reads the weight gets the tensor with its role.

For inference, only forwards see shares: all other code sees whole weights, and integers of the whole model. Each module
keeps its tensors in ``_shares``, which its forward reads. ``_parameters`` has tensors of the whole shapes, whose numbers all
processes gather when code reads them. The module gets a class of its own with a property for each weight.

The module's ``__dict__`` has the value of the whole model, and a property of its class gives code of a forward the value
of this process. A configuration of which a module has a copy with smaller numbers is such a value, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from modular_converter.parallel.engine.base.weights_there import WeightThere, weight_there
from modular_converter.parallel.engine.group.same_calls import meet, refused_here
from modular_converter.parallel.engine.group.share_tensors import as_plain
from modular_converter.parallel.errors import MAKE_WHOLE, ApplyError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.apply import Applied, reassembled, sum_of_copies
from modular_converter.parallel.shard.collectives import (
    Group,
    GroupRegion,
    ProcessGroup,
    borders_of,
    exchanged,
    exchanged_now,
    region_of_products,
    same,
    under_transforms,
)
from modular_converter.parallel.shard.forwards import (
    THREAD,
    called_alone,
    conv1d_product,
    is_conv1d,
    runs_in,
    within,
)
from modular_converter.parallel.shard.role_parameters import SCATTERS, stays_whole, with_role
from modular_converter.parallel.shard.shares import block_lengths, share_lengths
from modular_converter.parallel.styles import acting
from modular_converter.parallel.styles.forward import layer_product
from modular_converter.parallel.styles.layout import SUMMED_GRADIENT, WeightLayout
from modular_converter.parallel.torch_private import StridedShard, functorch_is_active


def placement_of(piece: Piece, size: int, alone: bool) -> Placement | None:
    """The placement over one dimension of a mesh; None if torch has none for the share.

    torch cuts into pieces of equal length, and the last pieces are shorter or empty. Packed blocks have a strided
    placement; torch 2.13 gathers it wrongly if a data dimension cuts the first dimension, too.

    Args:
        size: of the group.
        alone: whether the layout has no data dimension.
    """
    if piece.dim < 0:
        return Replicate()
    lengths = share_lengths(piece.length, piece.parts, size, piece.units)
    if piece.units is not None and piece.units.has_copies(size):
        return None
    blocks = block_lengths(piece.length, piece.parts)
    if len(blocks) == 1:
        return Shard(piece.dim) if lengths == chunk_lengths(piece.length, size) else None
    even = len(set(blocks)) == 1 and len(set(lengths)) == 1
    return StridedShard(piece.dim, split_factor=len(blocks)) if even and (alone or piece.dim > 0) else None


def chunk_lengths(length: int, size: int) -> tuple[int, ...]:
    """The lengths of the pieces into which torch cuts a dimension."""
    each = -(-length // size)
    return tuple(max(0, min(each, length - rank * each)) for rank in range(size))


def product_forward(kind: type[Any], held: Mapping[str, HeldWeight]) -> Callable[..., Any] | None:
    """The forward for modules of a class with these weights; None if they keep their own."""
    weight = held.get("weight")
    if weight is None or weight.of_product is None or any(one.copies or one.summed for one in held.values()):
        return None
    if kind.forward is torch.nn.Linear.forward:
        return linear_forward
    return conv1d_forward if is_conv1d(kind) else None


def _forward_with(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, input: torch.Tensor) -> Any:
        held, stored = self._held, self._parameters
        own: HeldWeight = held["weight"]
        layout = own.of_product
        if torch.compiler.is_dynamo_compiling() or functorch_is_active():
            local = HeldWeight.local
        else:
            local = HeldWeight.local_now
            if THREAD.group is None:
                own.group.before_part()  # type: ignore[attr-defined]
                if not layout.whole_outside and called_alone(self):  # type: ignore[union-attr]
                    return function(input, _whole(self, "weight"), _whole(self, "bias"))
        region = region_of_products(own.group, True) if SCATTERS in self.__dict__ else own.region
        bias = stored.get("bias")
        if bias is not None and "bias" in held:
            bias = local(held["bias"], bias)
        return layer_product(layout, region, own.borders, function, input, local(own, stored["weight"]), bias)  # type: ignore[arg-type]

    return forward


# Code that torch compiles needs one forward for all modules alike.
linear_forward, conv1d_forward = _forward_with(F.linear), _forward_with(conv1d_product)


def _whole(module: Any, leaf: str) -> Any:
    """The whole weight, which all processes gather. Raises ``ApplyError`` for a share that no placement of torch describes."""
    stored = module._parameters.get(leaf)
    if stored is None or isinstance(stored, DTensor):
        return None if stored is None else stored.full_tensor()
    if leaf in module._held and module._held[leaf].is_part:
        raise ApplyError(
            f"a {type(module).__name__} that holds this process's share was called by itself, and would take and give shares: "
            "call the module around it"
        )
    return stored


_UNWRITTEN = (
    "{name} is this process's share, and code outside of a forward would take it for the whole weight: write to the share, "
    "model.get_parameter(name)"
)
# (Class, names of weights, forward, readers) -> the class with properties. Compiled code needs one class for all modules alike.
_MADE: dict[tuple[type[Any], tuple[str, ...], Any, Any], type[Any]] = {}


@dataclass(frozen=True, eq=False)
class HeldWeight:
    """A weight of a sharded model.

    Attributes:
        piece: its cut over the group; None for a whole weight without a role.
        shape: of the whole weight.
        dtensor: whether it is a DTensor; a share that no placement of torch describes is a plain parameter.
        summed: it is whole, in a sharded region, and its gradient is summed over the group.
        of_product, region: the layout of products with it, and their region.
    """

    piece: Piece | None
    shape: tuple[int, ...]
    group: Group
    dtensor: bool
    layouts: tuple[WeightLayout, ...] = ()
    whole: bool = True
    borders: tuple[int, ...] = ()
    copies: bool = False
    summed: bool = False
    of_product: WeightLayout | None = field(init=False)
    region: GroupRegion = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "of_product", next((layout for layout in self.layouts if layout.of_product), None))
        object.__setattr__(self, "region", GroupRegion(self.group))

    @property
    def is_part(self) -> bool:
        """Whether it is stored as this process's share alone, without the whole shape: no placement of torch says its cut."""
        if self.piece is None or self.piece.dim < 0 or self.dtensor:
            return False
        lengths = share_lengths(self.piece.length, self.piece.parts, self.group.size, self.piece.units)
        return any(length != self.piece.length for length in lengths)

    def read(self, held: Any) -> Any:
        """This process's tensor for the model's code; unchanged while ``fully_shard`` has it spread over data ranks."""
        if isinstance(held, DTensor) and (not self.dtensor or len(held.placements) > 1):
            return held
        local = self.local(held)
        if self.copies:
            local = exchanged(local, self.group, same, sum_of_copies, self.shape, self.piece)
        if self.summed:
            return GroupRegion(self.group).enter(local)
        return with_role(local, self) if self.layouts else local

    def local(self, held: Any) -> Any:
        """This process's tensor, with a gradient of the form of ``held``."""
        if torch.compiler.is_dynamo_compiling():
            return held.to_local() if isinstance(held, DTensor) else as_plain(held)
        if not functorch_is_active():
            return self.local_now(held)
        if self.dtensor and not isinstance(held, DTensor):
            raise ApplyError(
                "torch.func cannot transform sharded weights (functional_call): take torch.autograd.grad(loss, "
                "model.parameters(), create_graph=True)"
            )
        # `to_local` of torch has no form for transforms.
        return exchanged(held, held._spec, _local_of, _whole_of) if self.dtensor else as_plain(held)

    def local_now(self, held: Any) -> Any:
        """The same outside of compiled code and of transforms; ``to_local`` and its gradient take 90 Python functions more."""
        if not isinstance(held, DTensor):
            return as_plain(held)
        if not torch.is_grad_enabled():
            return held._local_tensor
        return exchanged_now(held, held._spec, _local_of, _whole_of, (), None)


def _local_of(held: Any, spec: Any) -> torch.Tensor:
    local: torch.Tensor = held._local_tensor
    return local.view_as(local)


def _whole_of(local: torch.Tensor, spec: Any) -> torch.Tensor:
    if under_transforms() or local.dtype != spec.tensor_meta.dtype or not local.is_contiguous():
        return DTensor.from_local(
            local, spec.mesh, spec.placements, run_check=False, shape=spec.shape, stride=spec.stride
        )
    return DTensor.__new__(DTensor, local, spec, requires_grad=False)


def hold_weights(
    applied: Applied, shapes: dict[str, tuple[int, ...]], mesh: DeviceMesh | None, alone: bool
) -> list[Any]:
    """Replace the parameters of a model that ``apply`` has sharded by parameters for torch's own tools.

    Args:
        shapes: name -> shape of the whole weight.
        mesh: of one dimension; None for plain parameters, which ``DistributedDataParallel`` needs.
        alone: whether the layout has no data dimension.

    Returns:
        The modules whose class has changed, for ``release``.
    """
    made: dict[int, tuple[torch.nn.Parameter, HeldWeight]] = {}
    keep: list[Any] = []  # old parameters, so that no new one gets the same identity
    elsewhere = {id(one) for module in applied.model.modules() for one in _kept_elsewhere(module)}
    changed: list[Any] = []
    for path, module in applied.model.named_modules():
        held: dict[str, HeldWeight] = {}
        for leaf, old in module._parameters.items():
            name = f"{path}.{leaf}" if path else leaf
            piece = applied.resolution.pieces.get(name)
            if old is None or piece is None and (mesh is None or id(old) in elsewhere):
                continue
            keep.append(old)
            if id(old) not in made:
                found = _held(piece, shapes[name], applied.group, mesh, alone)
                made[id(old)] = _parameter(old, found, mesh, alone), found
            module._parameters[leaf], held[leaf] = made[id(old)]
        if held:
            changed.append(module)
            module.__dict__["_held"], module.__dict__["_held_class"] = held, type(module)
            module.__class__ = made_with(type(module), tuple(held), _reader, product_forward(type(module), held))
    return changed


def note(applied: Applied, shapes: dict[str, tuple[int, ...]]) -> None:
    """Note the cut of each weight, from which whole weights can be gathered, without any change of the parameters."""
    for path, module in applied.model.named_modules():
        names = {leaf: f"{path}.{leaf}" if path else leaf for leaf in module._parameters}
        pieces = {leaf: applied.resolution.pieces.get(name) for leaf, name in names.items()}
        found = {
            leaf: _held(piece, shapes[names[leaf]], applied.group, None, False)
            for leaf, piece in pieces.items()
            if piece is not None
        }
        if found:
            module.__dict__["_held"] = found


def release(changed: Iterable[Any]) -> None:
    """Give modules their own classes back, with this process's shares as plain parameters."""
    plain: dict[int, torch.nn.Parameter] = {}
    keep: list[Any] = []
    for module in changed:
        for leaf in module.__dict__.pop("_held"):
            old = module._parameters[leaf]
            keep.append(old)
            if id(old) not in plain:
                local = old.to_local() if isinstance(old, DTensor) else as_plain(old)
                plain[id(old)] = torch.nn.Parameter(local.detach(), requires_grad=old.requires_grad)
            module._parameters[leaf] = plain[id(old)]
        module.__class__ = module.__dict__.pop("_held_class")


def _held(
    piece: Piece | None, shape: tuple[int, ...], group: Group, mesh: DeviceMesh | None, alone: bool
) -> HeldWeight:
    if piece is None:
        return HeldWeight(None, shape, group, mesh is not None)
    layouts = acting(piece.roles)
    lengths = share_lengths(piece.length, piece.parts, group.size, piece.units) if piece.dim >= 0 else ()
    dtensor = mesh is not None and placement_of(piece, group.size, alone) is not None
    copies = piece.dim >= 0 and piece.units is not None and piece.units.has_copies(group.size)
    summed = layouts == (SUMMED_GRADIENT,)
    whole, borders = stays_whole(piece.roles), borders_of(lengths)
    return HeldWeight(piece, shape, group, dtensor, layouts, whole, borders, copies, summed)


def _parameter(old: torch.nn.Parameter, held: HeldWeight, mesh: DeviceMesh | None, alone: bool) -> torch.nn.Parameter:
    local = old.detach().as_subclass(torch.Tensor)
    if not held.dtensor:
        made: Any = torch.nn.Parameter(local, old.requires_grad)
        made.group = held.group  # for a scaler of gradients
        return made  # type: ignore[no-any-return]
    placement = placement_of(held.piece, held.group.size, alone) if held.piece is not None else Replicate()
    assert mesh is not None and placement is not None
    strides = torch.empty(held.shape, device="meta").stride()
    whole = DTensor.from_local(
        local.contiguous(), mesh, [placement], run_check=False, shape=torch.Size(held.shape), stride=strides
    )
    return torch.nn.Parameter(whole, old.requires_grad)


def _kept_elsewhere(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Parameters that a module also keeps in plain lists or attributes, as recurrent layers do."""
    for value in vars(module).values():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, torch.nn.Parameter):
                yield one


def made_with(
    own: type[Any],
    leaves: tuple[str, ...],
    reader: Callable[[type[Any], str], property],
    forward: Callable[..., Any] | None = None,
) -> type[Any]:
    """A class of the same name with a property for each of its weights, and with another forward unless it is None."""
    key = own, tuple(sorted(leaves)), forward, reader
    if key not in _MADE:
        body: dict[str, Any] = {leaf: reader(own, leaf) for leaf in leaves}
        if forward is not None:
            body["forward"] = forward
        body |= {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
        body |= {"__reduce_ex__": _refuse_copies, "_save_to_state_dict": _saved_whole(own._save_to_state_dict)}
        _MADE[key] = type(own.__name__, (own,), body)
    return _MADE[key]


def _saved_whole(own: Callable[..., None]) -> Callable[..., None]:
    """A module's step of ``state_dict``, which code takes for that of the whole model."""

    @functools.wraps(own)
    def save(module: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        part = next((leaf for leaf, held in module.__dict__.get("_held", {}).items() if held.is_part), None)
        if part is not None and not keep_vars and not isinstance(module._parameters[part], WeightThere):
            raise ApplyError(
                f"{prefix}{part} is this process's share, and state_dict would give it for the whole weight: take "
                "full_state_dict(), or save_checkpoint"
            )
        own(module, destination, prefix, keep_vars)

    return save


def _refuse_copies(module: Any, protocol: Any) -> Any:
    raise ApplyError(
        f"a {type(module).__name__} with a process's share of its weights cannot be copied or pickled: take its weights from "
        "full_state_dict()"
    )


def _reader(kind: type[Any], leaf: str) -> property:
    def read(module: Any) -> Any:
        if leaf not in module._parameters:
            refuse(module)
        held, stored = module._held[leaf], module._parameters[leaf]
        if torch.compiler.is_dynamo_compiling() or isinstance(stored, DTensor) and not held.dtensor:
            return held.read(stored)
        if within(held.group):
            return held.read(stored)
        if runs_in(module, held.group):
            held.group.before_part()
            return held.read(stored)
        return _unread(held, stored, f"{leaf} of a {type(module).__name__}") if held.is_part else stored

    def refuse(module: Any, value: Any = None) -> None:
        """For parametrizations, which delete a weight, and set another attribute of its name."""
        raise ApplyError(
            f"{leaf} of a {type(module).__name__} was deleted or replaced after parallelize, which would act on no share of "
            f"the processes: change the model before parallelize, or {MAKE_WHOLE}"
        )

    return property(read, refuse)


def _unread(held: HeldWeight, stored: torch.Tensor, name: str) -> torch.Tensor:
    """A share that no placement of torch describes, for code outside of a forward: its facts, and an error for its numbers."""

    def refuse() -> torch.Tensor:
        raise refused_here(
            f"{name} is this process's share, and code outside of a forward would take it for the whole weight: read it from "
            "full_state_dict(), or the share with model.get_parameter(name).as_subclass(torch.Tensor)"
        )

    empty = torch.empty(held.shape, dtype=stored.dtype, device="meta")
    return weight_there(empty, name, stored.requires_grad, stored.device, refuse, _UNWRITTEN)


def computes_share(module: Any, group: Any) -> bool:
    """Whether code of a forward calls the caller, in which the module takes or gives this process's share.

    A layer whose input or output is a share of what is around it computes whole if it is called by itself.

    Args:
        group: the processes that share out the module.
    """
    if within(group):
        return True
    if not runs_in(module, group):
        return False
    own: HeldWeight | None = module.__dict__.get("_held", {}).get("weight")
    product = None if own is None else own.of_product
    return product is None or product.whole_outside or not called_alone(module)


_SIZES = "_sizes"


def hide_sizes(applied: Applied) -> list[tuple[Any, type[Any]]]:
    """Put the whole model's values before those of this process, in place.

    Returns:
        The changed modules with their classes, for ``show_sizes``.
    """
    whole: dict[int, tuple[Any, dict[str, Any]]] = {}
    for owner, name, value in applied.integers:
        if isinstance(owner, torch.nn.Module) and name in vars(owner):
            whole.setdefault(id(owner), (owner, {}))[1].setdefault(name, value)
    changed = []
    for module, values in whole.values():
        module.__dict__[_SIZES] = applied.group, {name: vars(module)[name] for name in values}
        module.__dict__.update(values)
        changed.append((module, type(module)))
        module.__class__ = made_with(type(module), tuple(values), _size_reader)
    return changed


def show_sizes(changed: list[tuple[Any, type[Any]]]) -> None:
    """Undo ``hide_sizes``; ``undo`` of the shares sets the whole values."""
    for module, own in changed:
        module.__class__ = own
        module.__dict__.pop(_SIZES)


def _size_reader(kind: type[Any], name: str) -> property:
    def read(module: Any) -> Any:
        group, own = module._sizes
        if torch.compiler.is_dynamo_compiling() or computes_share(module, group):
            return own[name]
        return module.__dict__[name]

    def write(module: Any, value: Any) -> None:
        module.__dict__[name] = value  # the next call refuses it

    return property(read, write)


_UNWRITTEN_FOR_INFERENCE = (
    "{name} is shared out over processes in the form for inference, where writing would change a copy; leave inference= and "
    "compile= out to change weights"
)
_SHARES = "_shares"


def hide_shares(model: torch.nn.Module) -> None:
    """Put whole weights before the shares of a model whose modules say in ``_held`` how they are cut, in place."""
    made: dict[int, torch.nn.Parameter] = {}
    for path, module in model.named_modules():
        held: dict[str, HeldWeight] = module.__dict__.get("_held", {})
        if not held:
            continue
        if _SHARES not in module.__dict__:
            module.__class__ = made_with(type(module), tuple(held), _share_reader)
        shares = module.__dict__[_SHARES] = dict(module._parameters)
        role = module.__dict__.get("_plain_role")
        if role is not None:  # the weight of its forward, for other code of forwards
            role.data = shares["weight"].data
        for leaf, one in held.items():
            share = shares[leaf]
            if id(share) not in made:
                made[id(share)] = _gathered_weight(share, one, f"{path}.{leaf}" if path else leaf)
            module._parameters[leaf] = made[id(share)]


def through_shares(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method such as ``_apply`` that replaces the numbers or the device of all weights: it gets the shares."""

    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        for module in self.modules():
            module._parameters.update(module.__dict__.get(_SHARES, {}))
        try:
            return own(self, *args, **kwargs)
        finally:
            hide_shares(self)

    return applied


def _gathered_weight(share: Any, held: HeldWeight, name: str) -> torch.nn.Parameter:
    empty, owner = torch.empty(held.shape, dtype=share.dtype, device="meta"), held.group
    assert isinstance(owner, ProcessGroup)

    def fetch() -> torch.Tensor:
        meet(f"code that reads {name}", owner.group)
        assert held.piece is not None
        return reassembled(share.detach().as_subclass(torch.Tensor), held.piece, owner).clone()

    return weight_there(empty, name, share.requires_grad, share.device, fetch, _UNWRITTEN_FOR_INFERENCE)


def _share_reader(kind: type[Any], leaf: str) -> property:
    inner = getattr(
        kind, leaf, None
    )  # of a class whose forward reads `_shares`: other code gets the weight with its role

    def read(module: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or computes_share(module, module._held[leaf].group):
            return module._shares[leaf] if inner is None else inner.fget(module)
        return module._parameters[leaf]

    return property(read)
