"""The use of memory and work of each segment of a run, for any number of rows, from two recordings of a part of the layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from modular_converter.parallel.advice.recording import BACKWARD, FORWARD, Kernel, Recording, SegmentRun
from modular_converter.parallel.errors import BuildError


BLOCK = 512
"""torch's allocator for GPUs rounds each tensor up to a multiple of so many bytes."""


@dataclass(frozen=True)
class StretchUse:
    """A segment in one phase, in bytes beyond those at its start.

    Attributes:
        peak: the most at once, with the gradients of weights that it makes.
        net: at its end; in the backward without the gradients of weights.
        gradients: of weights.
    """

    peak: float = 0.0
    net: float = 0.0
    gradients: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    collectives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class SegmentUse:
    """A segment: the path of its layer (empty for the code between layers), its forward and its backward."""

    path: str
    forward: StretchUse
    backward: StretchUse


@dataclass(frozen=True)
class RunUse:
    """A whole run of a number of rows.

    Attributes:
        segments: of all layers of the model, in order.
        result: bytes of the output.
    """

    segments: tuple[SegmentUse, ...]
    result: float

    @property
    def kept(self) -> float:
        """Bytes of activations at the end of the forward."""
        return sum(one.forward.net for one in self.segments)

    @property
    def activations(self) -> float:
        """The most bytes of activations at once, with the gradients of weights that one segment makes."""
        return max(self.live())

    def live(self) -> list[float]:
        """The most bytes in each stretch: forwards in order, then backwards in reverse."""
        found, held = [], 0.0
        for one in self.segments:
            found.append(held + one.forward.peak)
            held += one.forward.net
        for one in reversed(self.segments):
            found.append(held + one.backward.peak)
            held += one.backward.net
        return found


@dataclass(frozen=True)
class Recordings:
    """Two recordings of the same run with different numbers of rows, and what stands for the layers that they leave out.

    Attributes:
        rows: of both recordings.
        alike: path of a layer -> path of the recorded one that stands for its kind, in the model's order; of the lists of
            which layers were left out.
    """

    rows: tuple[int, int]
    both: tuple[Recording, Recording]
    alike: Mapping[str, str]

    def at(self, rows: int) -> RunUse:
        """The use of a run with so many rows: sizes are straight lines through the two recordings."""
        first, second = self.both
        if len(first.events) != len(second.events) or first.segments != second.segments:
            raise BuildError("its run does other operations with more rows, so that its memory cannot be scaled")
        (low, high), scale = self.rows, _line(self.rows, rows)
        assert low < high
        events = [_rounded(scale(a, b)) for a, b in zip(first.events, second.events)]
        uses: dict[tuple[str, int], StretchUse] = {}
        ends = [one.first for one in first.stretches[1:]] + [len(events)]
        for a, b, end in zip(first.stretches, second.stretches, ends):
            found = _use(a, b, events[a.first : end], scale)
            known = uses.get((a.phase, a.segment))
            uses[a.phase, a.segment] = found if known is None else _joined(known, found)
        nothing = StretchUse()
        segments = [
            SegmentUse(path, uses.get((FORWARD, n), nothing), uses.get((BACKWARD, n), nothing))
            for n, path in enumerate(first.segments)
        ]
        return RunUse(tuple(_with_all_layers(segments, self.alike)), scale(first.result, second.result))


Scale = Callable[[float, float], float]


def _line(known: tuple[int, int], rows: int) -> Scale:
    """The value at ``rows`` of the line through two values; no size is below nothing."""
    part = (rows - known[0]) / (known[1] - known[0])

    def scale(first: float, second: float) -> float:
        found = first + (second - first) * part
        return found if first < 0 or found > 0 else 0.0

    return scale


def _rounded(size: float) -> float:
    return (1 if size > 0 else -1) * -(-abs(size) // BLOCK) * BLOCK


def _use(first: SegmentRun, second: SegmentRun, events: Sequence[float], scale: Scale) -> StretchUse:
    sums = list(accumulate(events, initial=0.0))
    kernels = tuple(
        Kernel(scale(a.flops, b.flops), scale(a.moved, b.moved)) for a, b in zip(first.kernels, second.kernels)
    )
    calls = tuple((a[0], scale(a[1], b[1])) for a, b in zip(first.collectives, second.collectives))
    return StretchUse(max(sums), sums[-1], scale(first.gradients, second.gradients), kernels, calls)


def _joined(first: StretchUse, second: StretchUse) -> StretchUse:
    return StretchUse(
        max(first.peak, first.net + second.peak),
        first.net + second.net,
        first.gradients + second.gradients,
        first.kernels + second.kernels,
        first.collectives + second.collectives,
    )


def _with_all_layers(segments: Sequence[SegmentUse], alike: Mapping[str, str]) -> list[SegmentUse]:
    """The segments, with a copy of a recorded layer's segment, and of the code before it, for each layer left out.

    The last recorded layers become the last of all, if these are of the same kinds; else copies follow them.
    """
    place = {one.path: number for number, one in enumerate(segments) if one.path}
    lists: dict[str, list[str]] = {}
    for path, known in alike.items():
        if known in place:  # else a tower without inputs
            lists.setdefault(path.rpartition(".")[0], []).append(path)
    after: dict[int, list[SegmentUse]] = {}
    names: dict[int, str] = {}
    for members in lists.values():
        recorded = [path for path in members if path in place]
        first = max(recorded.index(alike[path]) for path in members) + 1
        last = members[len(members) - len(recorded) + first :]
        if [alike[one] for one in recorded[first:]] == [alike[one] for one in last]:
            names |= {place[one]: path for one, path in zip(recorded[first:], last)}
        else:
            first, last = len(recorded), []
        copies = after[place[recorded[first - 1]]] = []
        for path in members[first : len(members) - len(last)]:
            number = place[alike[path]]
            copies += [segments[number - 1], replace(segments[number], path=path)]
    found = []
    for number, one in enumerate(segments):
        found.append(replace(one, path=names.get(number, one.path)))
        found += after.get(number, [])
    return found
