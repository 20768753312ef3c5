"""What the model's own code calls the lengths of the blocks of an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from modular_converter.parallel.plans.parts import REST, Part, reduced
from modular_converter.parallel.solve.axes import SUM, Seq, size
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.trace.graph import Source


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//"}


def parts_of(flow: Flow, seq: Seq, lengths: Sequence[int]) -> tuple[Part, ...]:
    """The parts to write for the blocks of an axis: none for one, else what the code cuts by, else their proportion.

    Blocks of one length in the small instance that the code cuts by different attributes need not be equal elsewhere.
    """
    if len(lengths) < 2:
        return ()
    flat = flow.axes.flat(seq)
    segments = flat[0].parts if len(flat) == 1 and flat[0].kind == SUM else []
    if [size(segment) for segment in segments] != list(lengths):
        return reduced(lengths)
    said = _stretches(flow, seq)
    ends = list(accumulate(lengths))
    texts = [_length(said, end - length, end) for length, end in zip(lengths, ends)]
    if texts.count(None) == 1:
        texts[texts.index(None)] = REST
    found = tuple(text for text in texts if text is not None)
    return found if len(found) == len(texts) and len(set(found)) > 1 else reduced(lengths)


def _length(said: Mapping[tuple[int, int], Source], start: int, stop: int) -> str | None:
    """What the model's code calls the length of a stretch: a split size, or the difference of two slice borders."""
    own, before, upto = said.get((start, stop)), said.get((0, start)), said.get((0, stop))
    if own is not None:
        return text_of(own)
    if before is None or upto is None:
        return None
    if upto.kind == "add" and upto.args[0] == before:
        return text_of(upto.args[1])
    return f"({text_of(upto)})-({text_of(before)})"


def _stretches(flow: Flow, seq: Seq) -> dict[tuple[int, int], Source]:
    """Start and stop -> the first source that can be written down, of all cuts of an axis."""
    found: dict[tuple[int, int], Source] = {}
    key = _key(flow, seq)
    for stretch in flow.stretches:
        if stretch.source.leaves() and text_of(stretch.source) and _key(flow, stretch.seq) == key:
            found.setdefault((stretch.start, stretch.stop), stretch.source)
    return found


def _key(flow: Flow, seq: Seq) -> tuple[int, ...]:
    return tuple(atom.number for atom in flow.axes.leaves(seq))


def text_of(source: Source) -> str | None:
    """An integer's source as an expression in attributes; None where a shape or a bare number is behind it."""
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
