"""The code's own names for the lengths of the blocks of an axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from modular_converter.parallel.plans.parts import LENGTH, REST, Part
from modular_converter.parallel.solve.axes import SUM, Seq, size
from modular_converter.parallel.solve.choose import DIVISOR
from modular_converter.parallel.solve.flow import Count, Flow, Requirement
from modular_converter.parallel.trace.graph import Source


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//"}


def parts_of(flow: Flow, seq: Seq, lengths: Sequence[int], path: str) -> tuple[Part, ...] | None:
    """The ``parts`` of a rule for the blocks of an axis, valid for a model of any size.

    Args:
        lengths: of the blocks, in the small instance.
        path: the module whose attributes, or whose parents' attributes, may be named.

    Returns:
        ``()`` for one block; else a 1 for each block that the code cuts, an expression for their number, or an expression
        for each block. None if the code has none of these: then the proportion holds only for the small instance.
    """
    if len(lengths) < 2:
        return ()
    texts = _texts(flow, seq, lengths)
    if texts and (len(set(texts)) > 1 or len(texts) >= DIVISOR):
        return texts
    if len(set(lengths)) > 1:
        return None
    if texts:  # fewer than DIVISOR blocks are written in the code; in a small instance a configuration has more
        return (1,) * len(lengths)
    number = _number(flow, flow.axes.flat(seq), len(lengths), path)
    if number is None:
        return None
    return (1,) * len(lengths) if number.isdigit() else (number,)


def _texts(flow: Flow, seq: Seq, lengths: Sequence[int]) -> tuple[str, ...]:
    """An expression for each block, from the cuts of an axis and of its parts; empty if one is missing."""
    flat = flow.axes.flat(seq)
    segments = flat[0].parts if len(flat) == 1 and flat[0].kind == SUM else []
    stretches = _stretches(flow, seq)
    found: list[str | None] = []
    start, rest = 0, list(lengths)
    for segment in segments:
        own = _taken(rest, size(segment))
        rest = rest[len(own) :]
        found += (
            [_length(stretches, start, start + size(segment))]
            if len(own) == 1
            else _texts(flow, segment, own) or [None]
        )
        start += size(segment)
    if len(found) == len(lengths) and found.count(None) == 1:
        found[found.index(None)] = REST
    texts = tuple(text for text in found if text is not None)
    return texts if len(texts) == len(found) == len(lengths) else ()


def _taken(lengths: Sequence[int], total: int) -> list[int]:
    """The first lengths that add up to a total; empty if no such lengths do."""
    ends = list(accumulate(lengths))
    return list(lengths[: ends.index(total) + 1]) if total in ends else []


def _number(flow: Flow, flat: Seq, number: int, path: str) -> str | None:
    """The code's name for the number of equal blocks: a constant, or an expression in attributes of modules."""
    lengths, counts = _by_key(flow, flow.requirements), _by_key(flow, flow.counts)
    found: list[str] = []
    constant = None
    for at in range(1, len(flat) + 1):
        sources = counts.get(_key(flow, flat[:at]), [])
        if size(flat[:at]) == number:
            sources = sources + lengths.get(_key(flow, flat[:at]), [])
            found += [
                f"{LENGTH}//{_in_brackets(text)}" for text in _around(lengths.get(_key(flow, flat[at:]), []), path)
            ]
        sources = [source for source in sources if source.value == number]
        found = _around(sources, path) + found
        constant = str(number) if any(source.kind == "const" for source in sources) else constant
    return found[0] if found else constant


def _in_brackets(text: str) -> str:
    return text if text.replace(".", "").isidentifier() else f"({text})"


def _by_key(flow: Flow, remarks: Iterable[Requirement] | Iterable[Count]) -> dict[tuple[int, ...], list[Source]]:
    found: dict[tuple[int, ...], list[Source]] = {}
    for remark in remarks:
        found.setdefault(_key(flow, remark.seq), []).append(remark.source)
    return found


def _around(sources: Iterable[Source], path: str) -> list[str]:
    """The sources that are attributes of a module or of its parents, as text."""
    return [text for source in sources if _is_around(source, path) and (text := text_of(source))]


def _is_around(source: Source, path: str) -> bool:
    owners = [leaf.owner for leaf in source.leaves()]
    return bool(owners) and all(f"{path}.".startswith(f"{owner}.") or not owner for owner in owners)


def _length(stretches: Mapping[tuple[int, int], Source], start: int, stop: int) -> str | None:
    """The code's name for the length of a part: a split size, or the difference of two slice borders."""
    own, before, upto = stretches.get((start, stop)), stretches.get((0, start)), stretches.get((0, stop))
    if own is not None:
        return text_of(own)
    if before is None or upto is None:
        return None
    if upto.kind == "add" and upto.args[0] == before:
        return text_of(upto.args[1])
    return f"({text_of(upto)})-({text_of(before)})"


def _stretches(flow: Flow, seq: Seq) -> dict[tuple[int, int], Source]:
    """(Start, stop) of a part -> the first source for its length that has a text."""
    found: dict[tuple[int, int], Source] = {}
    key = _key(flow, seq)
    for stretch in flow.stretches:
        if stretch.source.leaves() and text_of(stretch.source) and _key(flow, stretch.seq) == key:
            found.setdefault((stretch.start, stretch.stop), stretch.source)
    return found


def _key(flow: Flow, seq: Seq) -> tuple[int, ...]:
    return tuple(atom.number for atom in flow.axes.leaves(seq))


def text_of(source: Source) -> str | None:
    """An integer's source as an expression in attributes; None if it depends on a shape, or on numbers alone."""
    if source.kind == "attr":
        return source.name
    if source.kind == "const":
        return str(source.value)
    if source.kind not in _SIGNS or not source.leaves():
        return None
    left, right = (text_of(arg) for arg in source.args)
    if left is None or right is None:
        return None
    return f"{_wrapped(left, source.args[0])}{_SIGNS[source.kind]}{_wrapped(right, source.args[1])}"


def _wrapped(text: str, source: Source) -> str:
    return text if source.kind in ("attr", "const") else f"({text})"
