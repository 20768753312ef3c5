"""The value on a rank of an integer of a model's code, such as a number of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from modular_converter.parallel.errors import MisfitError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.plans.units import Units
from modular_converter.parallel.shard.shares import block_lengths, share_length


# Where the library's attentions keep how many query heads share a key/value head.
_GROUP_SIZES = ("num_key_value_groups", "num_kv_groups", "n_rep")


def group_sizes(model: torch.nn.Module, pieces: Mapping[str, Piece], size: int) -> list[tuple[str, str]]:
    """The integers, by module path and name, that state the members of units which ranks share out."""
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


def own_integer(pieces: Mapping[str, Piece], label: str, value: int, rank: int, size: int) -> int:
    """A rank's part of an integer: as many of its units as the rank has of the weights' around it.

    Args:
        label: ``module path:name``.

    Raises ``MisfitError`` if the weights do not show the meaning of the integer.
    """
    path = label.partition(":")[0]
    near = _near(pieces, path)
    shared = [piece for piece in near if piece.units is not None and piece.units.number < size]
    if shared:
        is_group_size = label.replace(".", ":").rpartition(":")[2] in _GROUP_SIZES
        found = _among_members(shared, value, rank, size, is_group_size)
    else:
        uneven = {units for piece in near if (units := _units_of(piece)).number % size}
        fitting = [units for units in uneven if value % units.number == 0]
        found = {value // units.number * units.own(rank, size)[1] // max(units.members, 1) for units in fitting}
        if not uneven and value % size == 0:
            return value // size
        if not uneven:
            raise MisfitError(path, f"{label} is {value}, which does not divide over {size} ranks")
    if len(found) != 1:
        said = f"{label} is {value}, and no weight near it says how it is shared out over {size} ranks"
        raise MisfitError(path, said)
    return found.pop()


def _near(pieces: Mapping[str, Piece], path: str) -> list[Piece]:
    """The weights that are cut within a module, or within the nearest one around it."""
    words = path.split(".") if path else []
    for depth in range(len(words), -1, -1):
        start = "".join(f"{word}." for word in words[:depth])
        found = [piece for name, piece in pieces.items() if name.startswith(start) and piece.dim >= 0]
        if found:
            return found
    return []


def _units_of(piece: Piece) -> Units:
    return piece.units or Units(min(block_lengths(piece.length, piece.parts)))


def _among_members(near: Sequence[Piece], value: int, rank: int, size: int, is_group_size: bool) -> set[int]:
    """The parts that an integer can be where ranks share out the members of units: heads, groups, widths of weights.

    Args:
        is_group_size: what it is where a group has as many members as there are groups; else the number of groups.
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
