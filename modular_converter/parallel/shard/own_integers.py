"""A rank's value of an integer in a model's code, such as the number of heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.errors import MisfitError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.plans.units import Units
from modular_converter.parallel.shard.shares import block_lengths, share_length


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


def is_size(value: Any) -> bool:
    """Whether a value of a module can be a size or a number of units that ranks share out; 0 and 1 are counters."""
    return any(map(is_size, value)) if type(value) in (list, tuple) else type(value) is int and value > 1


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
        said = f"{label} is {value}, and no weight near it shows how it divides over {size} ranks"
        raise MisfitError(path, said)
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
