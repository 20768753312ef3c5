"""The lengths of inputs at which a model's code does something else: those near the numbers that meet a length."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator

from modular_converter.parallel.trace.graph import Arg, Comparison, Source, Trace, evaluate


_SMALL = 64


def holds(compared: Comparison) -> bool:
    """The result of a comparison."""
    return bool(getattr(operator, compared.operator)(compared.left.value, compared.right.value))


def compares_at(compared: Comparison, usual: int, other: int) -> bool:
    """Whether a comparison holds if dimensions of the usual length have the other length."""

    def leaf(source: Source) -> int:
        return other if source.kind == "shape" and source.value == usual else source.value

    left, right = evaluate(compared.left, leaf), evaluate(compared.right, leaf)
    return bool(getattr(operator, compared.operator)(left, right))


def lengths_in(compared: Comparison) -> set[int]:
    """The lengths of tensors on which a comparison depends."""
    return {source.value for source in _sources((compared.left, compared.right)) if source.kind == "shape"}


def other_length(compared: Comparison, usual: int, most: int) -> int | None:
    """The smallest length up to ``most``, in place of the usual one, for which a comparison has another result."""
    if usual not in lengths_in(compared):
        return None
    was = compares_at(compared, usual, usual)
    return next((n for n in lengths_near(compared, most=most) if compares_at(compared, usual, n) != was), None)


def lengths_near(*compared: Comparison, most: int = 1 << 20) -> list[int]:
    """Small lengths, and lengths near the numbers in comparisons and near their products, up to ``most``."""
    sides = [side for one in compared for side in (one.left, one.right)]
    numbers = {1, *(source.value for source in _sources(sides))}
    about = {a * b + more for a in numbers for b in numbers for more in (-1, 0, 1)}
    return sorted(n for n in about | set(range(1, _SMALL + 1)) if 1 <= n <= most)


def beyond_numbers(numbers: Iterable[float], usual: int, most: int) -> int | None:
    """The length beyond all of these numbers that are longer than the usual length and less than ``most``."""
    found = [int(number) for number in numbers if usual < number < most and number == int(number)]
    return max(found) + 1 if found else None


def numbers_at_positions(trace: Trace) -> Iterator[float]:
    """The plain numbers in a trace's operations that may be compared with positions, such as the width of a window."""
    for op in trace.ops:
        if op.pointwise or "full" in op.name or op.name == "slice":
            given: tuple[Arg, ...] = (*op.args, *(value for _, value in op.kwargs))
            yield from (abs(one) for one in given if isinstance(one, (int, float)) and not isinstance(one, bool))


def _sources(roots: Iterable[Source]) -> Iterator[Source]:
    waiting = list(roots)
    while waiting:
        source = waiting.pop()
        waiting += source.args
        yield source
