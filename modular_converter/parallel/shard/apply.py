"""Apply a plan to a model in place, for one rank, and undo it.

Parameters become this rank's shares with a role, integers shrink, and modules get hooks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError, MisfitError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, Resolution, Units, resolve
from modular_converter.parallel.shard.collectives import Group, GroupRegion, all_shares, borders_of, exchanged, same
from modular_converter.parallel.shard.role_parameters import make_parameter
from modular_converter.parallel.shard.shares import block_lengths, share_length, share_lengths, stretches
from modular_converter.parallel.styles.forward import Site, after_of, before_of
from modular_converter.parallel.styles.layout import WeightLayout


@dataclass
class Applied:
    """A sharded model, with what ``undo`` needs.

    Attributes:
        integers: (owner, name, whole value) of each changed attribute, in order.
        handles: of the hooks.
    """

    model: torch.nn.Module
    resolution: Resolution
    group: Group
    integers: list[tuple[Any, str, Any]] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)

    def copies(self) -> list[tuple[Any, Any]]:
        """(Object in the settings, copy with a share's own numbers that a module has instead)."""
        return [(was, getattr(of, name)) for of, name, was in self.integers if hasattr(was, "__dict__")]


TakeShare = Callable[[torch.nn.Parameter, Piece, Group], torch.Tensor]


def apply(model: torch.nn.Module, plan: Plan | Resolution, group: Group, share: TakeShare | None = None) -> Applied:
    """Shard a model for one rank of a group. All ranks must hold the same weights and get the same inputs.

    Args:
        model: whole; changed in place.
        plan: a plan whose patterns all match, or its resolution for this model.
        group: the ranks; at most as many as the units of a sharded block.
        share: gives this rank's share of a parameter, for a model without weights; cut out of the parameter by default.

    Raises ``ApplyError`` for a pattern that matches nothing, and for an axis or integer that does not divide; the
    message names it.
    """
    applied = Applied(model, resolve(plan, model) if isinstance(plan, Plan) else plan, group)
    _check(applied)

    def local(parameter: torch.nn.Parameter, piece: Piece, group: Group) -> torch.nn.Parameter:
        own = local_part(parameter.detach(), piece, group).clone() if share is None else share(parameter, piece, group)
        return _local(own, parameter, piece, group)

    _replace_parameters(applied, local)
    for path, name in applied.resolution.attributes:
        _shrink(applied, model.get_submodule(path), path, name)
    for path, name in group_sizes(model, applied.resolution.pieces, group.size):
        _shrink(applied, model.get_submodule(path), path, name)
    for path, layout in applied.resolution.hooks:
        applied.handles += attach(applied, path, layout, group)
    return applied


def undo(applied: Applied) -> torch.nn.Module:
    """Make the model whole again, with its parameters gathered from all ranks; all ranks must call it."""
    for handle in applied.handles:
        handle.remove()
    for scope, name, value in reversed(applied.integers):
        setattr(scope, name, value)
    _replace_parameters(applied, _whole)
    return applied.model


def local_part(tensor: torch.Tensor, piece: Piece, group: Group) -> torch.Tensor:
    """This rank's share of a whole tensor with the parameter's layout: of itself, or of its gradient."""
    if piece.dim < 0:
        return tensor
    return shard(tensor, piece.dim, piece.parts, group.rank, group.size, piece.units)


def shard(
    tensor: torch.Tensor, dim: int, parts: Sequence[int], rank: int, size: int, units: Units | None = None
) -> torch.Tensor:
    """A rank's share of a whole tensor: its slice of every packed block.

    Args:
        dim: the dimension to split.
        parts: relative lengths of packed blocks, ``()`` for one block.
        units: see ``stretches``, which also names the errors.
    """
    own = stretches(tensor.shape[dim], parts, rank, size, units)
    return torch.cat([tensor.narrow(dim, start, length) for start, _, length in own], dim).contiguous()


def reassembled(local: torch.Tensor, piece: Piece, group: Group) -> torch.Tensor:
    """The whole tensor from the shares of all ranks, the inverse of ``local_part``; all ranks must call it."""
    if piece.dim < 0:
        return local
    lengths = share_lengths(piece.length, piece.parts, group.size, piece.units)
    shares = all_shares(local, group, piece.dim, lengths)
    units = piece.units
    first = [share for rank, share in enumerate(shares) if units is None or units.is_first_replica(rank, group.size)]
    return unshard(first, piece.dim, piece.parts)


def unshard(pieces: Sequence[torch.Tensor], dim: int, parts: Sequence[int]) -> torch.Tensor:
    """The inverse of ``shard``, from the shares of all ranks in order."""
    blocks = [piece.split(block_lengths(piece.shape[dim], parts), dim) for piece in pieces]  # type: ignore[no-untyped-call]
    return torch.cat([block for group in zip(*blocks) for block in group], dim).contiguous()


def _check(applied: Applied) -> None:
    """Raise ``MisfitError`` for an axis that does not divide, before anything is changed."""
    group, parameters = applied.group, dict(applied.model.named_parameters(remove_duplicate=False))
    for name, piece in applied.resolution.pieces.items():
        try:
            if piece.dim >= 0:
                share_length(parameters[name].shape[piece.dim], piece.parts, group.rank, group.size, piece.units)
        except ApplyError as error:
            raise MisfitError(name, f"{name}: {error}") from error


def _local(local: torch.Tensor, parameter: torch.nn.Parameter, piece: Piece, group: Group) -> torch.nn.Parameter:
    lengths = share_lengths(piece.length, piece.parts, group.size, piece.units) if piece.dim >= 0 else ()
    made: torch.nn.Parameter = make_parameter(local, parameter, piece.roles, group, borders_of(lengths))
    if piece.units is not None and piece.units.has_copies(group.size) and made.requires_grad:
        shape = tuple(parameter.shape)
        parameter_hook: Any = made.register_hook  # torch has no types for it
        parameter_hook(lambda gradient: exchanged(gradient, group, sum_of_copies, same, shape, piece))
    return made


def sum_of_copies(gradient: torch.Tensor, group: Group, shape: tuple[int, ...], piece: Piece) -> torch.Tensor:
    """The gradient of a share of a weight with this shape, summed over the ranks that hold copies of the share."""
    whole, dim = gradient.new_zeros(shape), piece.dim
    moves = stretches(shape[dim], piece.parts, group.rank, group.size, piece.units)
    for start, local, length in moves:
        whole.narrow(dim, start, length).copy_(gradient.narrow(dim, local, length))
    return local_part(group.all_reduce(whole), piece, group)


def _whole(parameter: torch.nn.Parameter, piece: Piece, group: Group) -> torch.nn.Parameter:
    whole = reassembled(parameter.detach().as_subclass(torch.Tensor), piece, group)
    return torch.nn.Parameter(whole, requires_grad=parameter.requires_grad)


def _replace_parameters(applied: Applied, make: Any) -> None:
    """Replace each parameter at all places that have it; the old one is freed before the next is made."""
    found: dict[int, list[tuple[Any, str]]] = {}  # identities, all taken before the first new parameter is made
    cuts: dict[int, Piece] = {}
    for name, piece in applied.resolution.pieces.items():
        path, _, leaf = name.rpartition(".")
        owner = applied.model.get_submodule(path)
        key = id(owner._parameters[leaf])
        found.setdefault(key, []).append((owner, leaf))
        cuts.setdefault(key, piece)
    for key, places in found.items():
        owner, leaf = places[0]
        old = owner._parameters[leaf]
        assert old is not None
        new = make(old, cuts[key], applied.group)
        for owner, leaf in places:
            owner._parameters[leaf] = new


def _shrink(applied: Applied, module: torch.nn.Module, path: str, name: str) -> None:
    """Shrink ``num_heads``, ``config.num_heads`` (in a copy of the configuration for this module) or ``sizes[0]``."""
    scope: Any = module
    if name.startswith("config.") or "." in name:
        field_name, _, name = name.partition(".")
        original = getattr(module, field_name, None)
        if original is None:
            raise ApplyError(f"{path}:{field_name}.{name}: the module has no such attribute")
        if not any(owner is module and known == field_name for owner, known, _ in applied.integers):
            applied.integers.append((module, field_name, original))
            setattr(module, field_name, copy.copy(original))
        scope = getattr(module, field_name)
    if name.endswith("]"):
        name, _, index = name[:-1].partition("[")
        _shrink_entry(applied, scope, path, name, int(index))
        return
    value = getattr(scope, name, None)
    if not isinstance(value, int):
        raise ApplyError(f"{path}:{name}: the module has no such integer")
    own = _own_integer(applied, path, name, value)
    if scope is module:
        applied.integers.append((scope, name, value))
    setattr(scope, name, own)


def _shrink_entry(applied: Applied, scope: Any, path: str, name: str, index: int) -> None:
    values = getattr(scope, name, None)
    if not isinstance(values, (list, tuple)) or index >= len(values) or not isinstance(values[index], int):
        raise ApplyError(f"{path}:{name}[{index}]: no such entry")
    applied.integers.append((scope, name, values))
    changed = list(values)
    changed[index] = _own_integer(applied, path, f"{name}[{index}]", values[index])
    setattr(scope, name, type(values)(changed))


def _own_integer(applied: Applied, path: str, name: str, value: int) -> int:
    group = applied.group
    return own_integer(applied.resolution.pieces, f"{path}:{name}", value, group.rank, group.size)


def attach(applied: Applied, path: str, layout: WeightLayout, group: Group) -> list[Any]:
    """Hook what a layout says about the edges of a module to it.

    Returns:
        The handles of the hooks.

    Raises ``ApplyError`` if the layout does not fit the module.
    """
    module = applied.model.get_submodule(path)
    firsts: dict[str, tuple[int, int]] = {}
    for leaf, _ in module.named_parameters(recurse=False):
        piece = applied.resolution.pieces.get(f"{path}.{leaf}")
        if piece is not None and piece.dim == 0:
            first, _, length = stretches(piece.length, piece.parts, group.rank, group.size, piece.units)[0]
            firsts[leaf] = (first, first + length)
    site = Site(path, GroupRegion(group), applied.resolution.tails.get(path, ()), firsts)
    handles: list[Any] = []
    if (before := before_of(layout, site)) is not None:
        handles.append(
            module.register_forward_pre_hook(lambda _, args, kwargs: before(args, kwargs), with_kwargs=True)
        )
    if (after := after_of(layout, site)) is not None:
        handles.append(module.register_forward_hook(lambda _, args, result: after(result)))
    return handles


# The library's names for the number of query heads of one key/value head.
_GROUP_SIZES = ("num_key_value_groups", "num_kv_groups", "n_rep")


def group_sizes(model: torch.nn.Module, pieces: Mapping[str, Piece], size: int) -> list[tuple[str, str]]:
    """(Module path, name) of each integer that states the number of members in units that ranks divide."""
    found: dict[tuple[str, str], None] = {}
    for parameter, piece in pieces.items():
        units = piece.units
        if units is None or units.number >= size or units.members < 2:
            continue
        owner = parameter.rpartition(".")[0]
        for path in (owner, owner.rpartition(".")[0]):
            values = vars(model.get_submodule(path))
            found |= {(path, name): None for name in _GROUP_SIZES if values.get(name) == units.members}
    return list(found)


def modules_of_cut_sizes(model: torch.nn.Module, weights: Iterable[str]) -> set[str]:
    """The paths of the modules whose code meets sizes that differ between ranks.

    They own a cut weight, or a module that does; torch's containers have no code of their own. A module without parameters
    works on what the module around it gives it.

    Args:
        weights: names of the weights that ranks divide.
    """
    containers, found = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential), set()
    for path in {name.rpartition(".")[0] for name in weights}:
        found.add(path)
        around = path.rpartition(".")[0]
        while around and isinstance(model.get_submodule(around), containers):
            around = around.rpartition(".")[0]
        found.add(around)
    for path, module in model.named_modules():
        if path and path.rpartition(".")[0] in found and next(module.parameters(), None) is None:
            found.add(path)
    return found


def cut_sizes(model: torch.nn.Module, pieces: Mapping[str, Piece]) -> set[tuple[str, str]]:
    """(Path of a module, name) of the attributes that can be sizes or numbers of units which ranks share out."""
    paths = modules_of_cut_sizes(model, [name for name, piece in pieces.items() if piece.dim >= 0])
    scopes = {path: vars(model.get_submodule(path)) for path in paths}
    return {(path, name) for path, scope in scopes.items() for name, value in scope.items() if _is_size(value)}


def _is_size(value: Any) -> bool:
    """Whether a value can be a size or a number of units; 0 and 1 are counters."""
    return any(map(_is_size, value)) if type(value) in (list, tuple) else type(value) is int and value > 1


def own_integer(pieces: Mapping[str, Piece], label: str, value: int, rank: int, size: int) -> int:
    """A rank's value of an integer: it shrinks as the weights around it do.

    Args:
        label: ``module path:name``.
        value: of the whole model.

    Raises ``MisfitError`` if the weights do not show what the integer counts.
    """
    path = label.partition(":")[0]
    near = _near(pieces, path)
    shared = [piece for piece in near if piece.units is not None and piece.units.number < size]
    if shared:
        is_group_size = label.replace(".", ":").rpartition(":")[2] in _GROUP_SIZES
        found = _among_members(shared, value, rank, size, is_group_size)
    else:
        every = {piece.units or Units(min(block_lengths(piece.length, piece.parts))) for piece in near}
        uneven = {units for units in every if units.number % size}
        fitting = [units for units in uneven if value % units.number == 0]
        found = {value // units.number * units.own(rank, size)[1] // max(units.members, 1) for units in fitting}
        if not uneven and value % size == 0:
            return value // size
        if not uneven:
            raise MisfitError(path, f"{label} is {value}, which does not divide over {size} ranks")
    if len(found) != 1:
        reason = f"{label} is {value}, and no weight near it shows how it divides over {size} ranks"
        raise MisfitError(path, reason)
    return found.pop()


def _near(pieces: Mapping[str, Piece], path: str) -> list[Piece]:
    """The sharded weights of a module, or of its nearest parent that has any."""
    words = path.split(".") if path else []
    for depth in range(len(words), -1, -1):
        start = "".join(f"{word}." for word in words[:depth])
        found = [piece for name, piece in pieces.items() if name.startswith(start) and piece.dim >= 0]
        if found:
            return found
    return []


def _among_members(near: Sequence[Piece], value: int, rank: int, size: int, is_group_size: bool) -> set[int]:
    """A rank's possible values of an integer, if ranks divide the members of units: of heads, groups, or a width.

    Args:
        is_group_size: decides where a group has as many members as there are groups: whether the integer counts the
            members of a group, or the groups.
    """
    found = {
        share_length(piece.length, piece.parts, rank, size, piece.units) for piece in near if piece.length == value
    }
    for units in {piece.units for piece in near if piece.units is not None}:
        own = units.own(rank, size)[1]
        if value in (units.number * units.members, units.members) and (value == units.number or units.members > 1):
            both = value == units.number and any(value == piece.units.members for piece in near if piece.units)
            if not both or is_group_size == (units.members > 1):
                found.add(own)
    return found
