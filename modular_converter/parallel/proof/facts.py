"""What a run shows of the integers in a model's code, and whether a rank shows the same as the whole model.

A size that a plan shrinks, such as the number of heads, may meet a number of the code: ``min(heads, 16)``, ``heads - 16``,
``x[:, :16]``, ``if heads > 16``. Then a rank does something else than the whole model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from modular_converter.parallel.trace.graph import Comparison
from modular_converter.parallel.trace.lengths import compares_at, holds, lengths_in, lengths_near


Ratios = Collection[Fraction]
"""The fractions of lengths that a rank holds: 1/2, or 2/3 and 1/3 for three heads on two ranks."""


@dataclass(frozen=True)
class Sizes:
    """The integers of an operation that makes, views or parts a tensor: lengths, counts, dimensions.

    Attributes:
        width: the length of the dimension of which the operation takes a part; then the integers are places in it.
    """

    given: tuple[int, ...]
    width: int | None = None

    def __str__(self) -> str:
        said = ", ".join(map(str, self.given))
        return f"the sizes {said}" if self.width is None else f"the part {said} of {self.width}"

    def fits(self, share: Sizes, ratios: Ratios) -> bool:
        """Whether a rank's integers are the same, or its share of them."""
        if len(self.given) != len(share.given):
            return False
        if self.width is None or share.width is None:
            return all(one == own or _is_share(one, own, ratios) for one, own in zip(self.given, share.given))
        if self.width == share.width:
            return self.given == share.given
        ends = ((_within(one, self.width), _within(own, share.width)) for one, own in zip(self.given, share.given))
        return all(
            one == own == 0
            or (one, own) == (self.width, share.width)
            or _is_share(one, own, ratios)
            or _is_share(self.width - one, share.width - own, ratios)
            for one, own in ends
        )


def _within(place: int, width: int) -> int:
    return min(max(place + width if place < 0 else place, 0), width)


def _is_share(whole: int, own: int, ratios: Ratios) -> bool:
    return whole != 0 and Fraction(own, whole) in ratios


@dataclass(frozen=True)
class Decided:
    """A comparison of integers, of which one comes from a shape or an attribute; ``min`` and ``if length % 8`` are some."""

    compared: Comparison

    @property
    def holds(self) -> bool:
        return holds(self.compared)

    @property
    def sides(self) -> tuple[int, int]:
        return self.compared.left.value, self.compared.right.value

    def __str__(self) -> str:
        left, right = self.sides
        return f"{left} {_SIGNS[self.compared.operator]} {right} ({'true' if self.holds else 'false'})"

    def fits(self, share: Decided, ratios: Ratios) -> bool:
        """Whether the comparison has the same result on a rank, at each length that its numbers name."""
        if self.holds != share.holds or self.compared.operator != share.compared.operator:
            return False
        if self.sides == share.sides:
            return True
        return all(
            compares_at(self.compared, usual, other) == compares_at(share.compared, usual, other)
            for usual in lengths_in(self.compared) & lengths_in(share.compared)
            for other in lengths_near(self.compared, share.compared)
        )


_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
Fact: TypeAlias = "str | Sizes | Decided"
"""Numbers and words among the operands of an operation, as text; or its sizes; or a comparison."""


def first_difference(whole: Sequence[Fact], share: Sequence[Fact], ratios: Ratios) -> tuple[str, str] | None:
    """The first pair of facts at one place that do not fit, in words."""
    for one, own in zip(whole, share):
        same = type(one) is type(own) and (one == own or (not isinstance(one, str) and one.fits(own, ratios)))  # type: ignore[arg-type]
        if not same:
            return str(one), str(own)
    if len(whole) == len(share):
        return None
    more = str((whole if len(whole) > len(share) else share)[min(len(whole), len(share))])
    return (more, "nothing") if len(whole) > len(share) else ("nothing", more)


def shrunk(whole: Sequence[Fact], share: Sequence[Fact]) -> Iterator[Decided]:
    """The comparisons of the whole model whose sides are other numbers on a rank."""
    for one, own in zip(whole, share):
        if isinstance(one, Decided) and isinstance(own, Decided) and one.sides != own.sides:
            yield one
