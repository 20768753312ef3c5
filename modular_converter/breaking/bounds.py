"""What is computed of a stranger's code, bounded: one line may ask for more memory or time than there is.

Values are computed by `computed` alone, which looks at the operands first. All else that grows, such as lists, texts of
lists and turns of loops, spends of the budget of one class; where that is used up, the class is one that is not known.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class _NotKnown:
    """The value of an expression that the text does not tell."""

    def __repr__(self) -> str:
        return "?"


NOT_KNOWN = _NotKnown()
MOST = 10_000
"""Characters and items that a value has."""
MOST_NUMBER = 1 << 40
MOST_WORK = 1_000_000
"""Of an operation of which nothing is declared: the product of what its operands may stand for."""
MOST_STEPS = 1_000_000
"""Expressions and items that are followed for one class. The largest of transformers 5.24.0 takes 25,000."""
MOST_KEYS = 100_000
"""Entries of a state dict."""
_DIGITS = re.compile(r"\d+")


class TooLarge(Exception):
    """What a class makes has no bound, or one that is too large to be followed."""


class _Budget:
    left = MOST_STEPS


_budget = _Budget()


@contextlib.contextmanager
def budget() -> Iterator[None]:
    """The time in which one class is followed."""
    outer, _budget.left = _budget.left, MOST_STEPS
    try:
        yield
    finally:
        _budget.left = outer


def spend(steps: int) -> None:
    """Take steps from the budget. Raises `TooLarge`."""
    _budget.left -= steps
    if _budget.left < 0:
        raise TooLarge


def is_in(one: Any, other: Any) -> bool:
    """`one in other`."""
    return one in other


def is_not_in(one: Any, other: Any) -> bool:
    """`one not in other`."""
    return one not in other


def concatenated(parts: Iterable[str]) -> str:
    """Texts as one."""
    return "".join(parts)


_OF_ITEMS: frozenset[Callable[..., object]] = frozenset(
    (int, float, bool, str, len, max, min, abs, sum, list, tuple, sorted, set, all, any, is_in, is_not_in, concatenated)
    + (operator.add, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    + (operator.is_, operator.is_not, operator.getitem, operator.or_, operator.and_)
)  # fmt: skip
"""Operations that take and make no more than the items and characters of their operands, whatever numbers are among them."""
_OF_NUMBERS: frozenset[Callable[..., object]] = frozenset(
    (operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.neg, range)
)
"""Operations that make of numbers no more digits than the numbers have together."""

OF_TEXTS = frozenset(
    {
        "join",
        "replace",
        "upper",
        "lower",
        "title",
        "capitalize",
        "strip",
        "lstrip",
        "rstrip",
        "zfill",
        "split",
        "rsplit",
    }
    | {"removeprefix", "removesuffix", "partition", "rpartition", "startswith", "endswith", "isdigit", "find", "count"}
)
"""Methods of texts that are computed where the text is known."""


def computed(compute: Callable[..., object], *values: object) -> object:
    """What an operation makes of values; `NOT_KNOWN` where one of them is not known, where it fails, and where it would take
    or make much. An operation that is not declared above is taken for the worst, a power or a number of copies.
    """
    if NOT_KNOWN in values:
        return NOT_KNOWN
    if compute in _OF_ITEMS:
        is_bounded = sum(map(_items, values)) <= MOST
    elif compute in _OF_NUMBERS and all(isinstance(one, (int, float)) for one in values):
        is_bounded = True
    else:
        is_bounded = math.prod(1 + _reach(one) for one in values) <= MOST_WORK
    if not is_bounded:
        return NOT_KNOWN
    try:
        return if_small(compute(*values))
    except Exception:  # whatever a stranger's values do
        return NOT_KNOWN


def if_small(value: object) -> object:
    """A value, if it is small; else `NOT_KNOWN`."""
    if value is None or isinstance(value, (bool, float, range, _NotKnown)):  # nobody iterates over a range at large
        return value
    if isinstance(value, int):
        return value if abs(value) <= MOST_NUMBER else NOT_KNOWN
    return value if _items(value) <= MOST else NOT_KNOWN


def _items(value: object) -> int:
    """The items and characters of a value at any depth, counted until they are more than `MOST`."""
    found, rest = 0, [value]
    while rest and found <= MOST:
        one = rest.pop()
        found += 1
        if isinstance(one, range):
            found += MOST + 1 if one[MOST:] else len(one)
        elif isinstance(one, (str, bytes)):
            found += len(one)
        elif isinstance(one, (list, tuple, set, frozenset, dict)):
            found += len(one)
            if found <= MOST:
                rest += [*one, *one.values()] if isinstance(one, dict) else one
    return found


def _reach(value: object) -> int | float:
    """What an operand may stand for: a number of copies, or the width of a place in a template."""
    if isinstance(value, (int, float)):
        return abs(value)
    found = _items(value)
    if found > MOST:
        return MOST_WORK
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode("latin-1")
        given = MOST_WORK if "%" in text and "*" in text else 0
        found += given + sum(min(int(one[:9]), MOST_WORK) for one in _DIGITS.findall(text))
    return found


def one_text(parts: Iterable[str], between: str = "") -> str:
    """Texts as one. A long one is cut, with a hash of the whole: equal texts stay equal."""
    found, length, whole = list[str](), 0, None
    for part in parts:
        spend(1)
        length += len(part) + len(between)
        if length <= MOST:
            found.append(part)
            continue
        if whole is None:  # few texts are long, and a hash takes longer than a part
            whole = hashlib.sha256("".join(f"{between}{one}" for one in found).encode(errors="replace"))
        whole.update(f"{between}{part}".encode(errors="replace"))
    text = between.join(found)
    return text if whole is None else f"{text[:100]}… {whole.hexdigest()}"
