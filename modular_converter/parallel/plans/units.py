"""The units of an axis that no cut divides, such as heads, and the units of each rank, as integers."""

from __future__ import annotations

from dataclasses import dataclass

from modular_converter.parallel.errors import ApplyError


def own_units(count: int, rank: int, size: int) -> tuple[int, int]:
    """A rank's first unit, and its number of units. Raises ``ApplyError`` if there are fewer units than ranks."""
    if count < size:
        raise ApplyError(f"{count} units are too few for {size} ranks: one rank would hold nothing")
    each, more = divmod(count, size)
    return rank * each + min(rank, more), each + (rank < more)


@dataclass(frozen=True)
class Units:
    """The equal units of each block of an axis.

    Attributes:
        number: of units, such as heads.
        members: if there are more ranks than units, the number of members that the ranks of a unit divide, such as query
            heads; 1 if each of them has a copy of the unit, such as a key/value head; 0 if neither is possible.
    """

    number: int
    members: int = 0

    def own(self, rank: int, size: int) -> tuple[int, int]:
        """A rank's first member among those of all units, and its number of members. Raises as ``own_units`` does."""
        each = max(self.members, 1)
        if self.number >= size or not self.members:
            first, count = own_units(self.number, rank, size)
            return first * each, count * each
        unit = rank * self.number // size
        before, behind = (-(-border * size // self.number) for border in (unit, unit + 1))
        first, count = own_units(each, rank - before, behind - before) if each > 1 else (0, 1)
        return unit * each + first, count

    def has_copies(self, size: int) -> bool:
        """Whether several ranks hold the same units."""
        return self.members == 1 and self.number < size

    def is_first_copy(self, rank: int, size: int) -> bool:
        """Whether no lower rank holds the same units."""
        return not self.has_copies(size) or not rank or self.own(rank, size) != self.own(rank - 1, size)
