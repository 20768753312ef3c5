"""The parts of a weight: cut over the tensor dimension by the plan, and over data ranks by ``fully_shard``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.held_weights import HeldWeight, chunk_lengths
from modular_converter.parallel.engine.group.kept_gathered import close_gathered, data_units_of, end_broken
from modular_converter.parallel.engine.group.share_tensors import ShareTensor, mark
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.apply import reassembled
from modular_converter.parallel.shard.collectives import ProcessGroup, all_shares
from modular_converter.parallel.shard.shares import share_shape, stretches
from modular_converter.parallel.torch_private import weights_of_unit


# The first entry and the length in each dimension.
Box = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Spread:
    """One weight of a model, and the tensors with the same parts: its gradient, the state of its optimizer.

    Attributes:
        stored: the parameter in the form for optimizers.
        held: its cut over the tensor dimension; None without this dimension.
    """

    name: str
    stored: Any
    held: HeldWeight | None

    @property
    def cut(self) -> bool:
        """Whether the plan cuts it over the tensor dimension."""
        return self.held is not None and self.held.piece is not None and self.held.piece.dim >= 0

    @property
    def is_part(self) -> bool:
        """See ``HeldWeight.is_part``."""
        return self.held is not None and self.held.is_part

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole weight."""
        return self.held.shape if self.held is not None else tuple(self.stored.shape)

    @property
    def share(self) -> tuple[int, ...]:
        """The shape of this process's share over the tensor dimension, whole over data ranks."""
        if self.held is None:
            return self.shape
        return share_shape(self.shape, self.held.piece, self.held.group.rank, self.held.group.size)

    def data(self) -> ProcessGroup | None:
        """The data ranks among which ``fully_shard`` has cut the first dimension; None if it has not.

        Raises ``ApplyError`` for any other cut.
        """
        if not isinstance(self.stored, DTensor):
            return None
        own = int(self.held is not None and self.held.dtensor)
        mesh, placements = self.stored.device_mesh, self.stored.placements
        cuts = [n for n in range(mesh.ndim - own) if getattr(placements[n], "dim", None) is not None]
        if not cuts:
            return None
        if len(cuts) > 1 or getattr(placements[cuts[0]], "dim", 0) != 0:
            raise ApplyError(
                f"{self.name} has the placements {placements}; only fully_shard along the first dimension is supported"
            )
        return ProcessGroup(mesh.get_group(cuts[0]))

    @property
    def rows(self) -> tuple[int, int]:
        """The first row of ``share`` that this process holds among the data ranks, and their number."""
        data = self.data()
        if data is None:
            return 0, self.share[0] if self.share else 0
        lengths = chunk_lengths(self.share[0], data.size)
        return sum(lengths[: data.rank]), lengths[data.rank]

    def local(self, tensor: Any) -> torch.Tensor:
        """This process's entries of the weight, or of a tensor with the same parts, as a view."""
        found: torch.Tensor = tensor.detach()
        return found.to_local() if isinstance(found, DTensor) else found.as_subclass(torch.Tensor)

    def whole(self, tensor: Any) -> torch.Tensor:
        """The whole tensor of a tensor with the same parts; all processes that hold parts must call it."""
        local, data = self.local(tensor), self.data()
        if data is not None:
            shares = all_shares(local, data, 0, chunk_lengths(self.share[0], data.size))
            local = torch.cat(shares)
        if self.held is None or self.held.piece is None:
            return local
        return reassembled(local, self.held.piece, self.held.group)

    def copy_entries(self, local: torch.Tensor, whole: torch.Tensor) -> None:
        """Copy this process's entries of a whole tensor into ``local``."""
        for there, here in self.boxes():
            entries_in(local, here).copy_(entries_in(whole, there))

    def boxes(self) -> list[tuple[Box, Box]]:
        """(Box in the whole weight, box in ``local``) of each contiguous part of this process's entries."""
        shape, share = self.shape, self.share
        first, rows = self.rows
        piece = self.held.piece if self.held is not None else None
        if piece is None or piece.dim < 0:
            moves, dim = [(0, 0, shape[0])] if shape else [], 0
        else:
            assert self.held is not None
            group, dim = self.held.group, piece.dim
            moves = stretches(shape[dim], piece.parts, group.rank, group.size, piece.units)
        if not shape:
            return [(((), ()), ((), ()))]
        found: list[tuple[Box, Box]] = []
        for start, own, length in moves:
            low, high = (max(own, first), min(own + length, first + rows)) if dim == 0 else (own, own + length)
            sizes = [*share]
            sizes[0], sizes[dim] = rows, high - low
            if min(sizes) <= 0:
                continue
            there, here = [0] * len(shape), [0] * len(shape)
            there[0] = first
            there[dim], here[dim] = start + low - own, low - (first if dim == 0 else 0)
            found.append(((tuple(there), tuple(sizes)), (tuple(here), tuple(sizes))))
        return found


def entries_in(tensor: torch.Tensor, box: Box) -> torch.Tensor:
    """The entries of a tensor in a box, as a view."""
    for dim, (first, length) in enumerate(zip(*box)):
        tensor = tensor.narrow(dim, first, length)
    return tensor


def spread_of(model: torch.nn.Module) -> Iterator[Spread]:
    """The parameters of a model under each of their names, in the form for optimizers.

    After a forward without a backward, ``fully_shard`` holds some of them whole, in the type of products; this is undone.
    """
    free_gathered(model)
    for path, module in model.named_modules(remove_duplicate=False):
        held = module.__dict__.get("_held", {})
        for leaf, stored in (module._parameters | module.__dict__.get("_shares", {})).items():
            if stored is not None:
                yield Spread(f"{path}.{leaf}" if path else leaf, stored, held.get(leaf))


def gathered_weights(model: torch.nn.Module) -> dict[int, torch.nn.Parameter]:
    """Identity of a whole weight that ``fully_shard`` has made for products -> its form for optimizers.

    After a forward without a backward, modules hold some of the whole ones, which no step of an optimizer would change.
    """
    found = ((getattr(one, "_unsharded_param", None), one.sharded_param) for one in weights_of_units(model))
    return {id(whole): own for whole, own in found if whole is not None}


def weights_of_units(model: torch.nn.Module) -> Iterator[Any]:
    for unit in data_units_of(model):
        yield from weights_of_unit(unit)


def free_gathered(model: torch.nn.Module) -> None:
    """Let modules hold their weights in the form for optimizers; a backward that is to come gathers them again."""
    end_broken(model)
    for unit in data_units_of(model):
        close_gathered(unit)
        unit.reshard()


def gathering(is_spread: bool) -> contextlib.AbstractContextManager[Any]:
    """The block of a forward: tensors that ``fully_shard`` makes once and fills in each forward are no inference tensors.

    Args:
        is_spread: whether a layout shares weights out over data ranks; else nothing is gathered.
    """
    block = contextlib.ExitStack()
    if is_spread and torch.is_inference_mode_enabled():
        block.enter_context(torch.inference_mode(False))
        block.enter_context(torch.no_grad())
    return block


def models_of(user: Any) -> list[Any]:
    """A sharded model itself, or the stages that a process has of a pipeline."""
    return [user] if isinstance(user, torch.nn.Module) else list(user.stages.values())


def refuse_half_frozen(model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` for a weight that is whole for a backward, and of which ``requires_grad`` was set since."""
    for one in weights_of_units(model):
        place, own = one._module_info, one.sharded_param
        stored = place.module._parameters.get(place.param_name)
        gathered = stored is getattr(one, "_unsharded_param", None) and stored is not None
        if gathered and stored.requires_grad != own.requires_grad:
            raise ApplyError(
                f"{place.param_name} of a {type(place.module).__name__} was frozen or thawed between a forward and its backward, "
                "in which data ranks hold it whole: do it before the forward, or after the backward"
            )


def mark_parts(model: torch.nn.Module) -> list[Any]:
    """Let the weights that are this process's share alone look at what code outside of a forward computes with them."""
    found = [one for one in each_once(model) if one.is_part]
    for one in found:
        if isinstance(one.stored, ShareTensor):
            continue
        group: Any = one.held and one.held.group
        mark(one.stored, (one.name, one.shape, tuple(dist.get_process_group_ranks(group.group))))
    return [one.stored for one in found]


def each_once(model: torch.nn.Module) -> list[Spread]:
    """Each parameter of a model once, by its first name."""
    found: dict[int, Spread] = {}
    for one in spread_of(model):
        found.setdefault(id(one.stored), one)
    return list(found.values())
