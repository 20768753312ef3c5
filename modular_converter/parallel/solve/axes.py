"""Factored axes: each tensor dimension is a product of atoms; an atom is a leaf, a product or a concatenation.

Two axes that an operation connects are unified; a ``view`` or ``split`` refines the atoms that it cuts. The leaves at the
end are the axes of the model: heads, key/value groups, head widths, hidden widths. This is type inference, with axis
lengths for types.

Example: a fused projection of length 108, chunked in 3 and viewed as heads, becomes ``sum([6 6'], [6 6'], [6 6'])``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod


# An axis unified with a shifted copy of itself would be cut at every position, and is never sharded: stop early.
STEP_LIMIT, DEPTH_LIMIT = 300, 100  # a level takes four frames of Python's thousand
LEAF, PRODUCT, SUM = "leaf", "product", "sum"


@dataclass(eq=False)
class Atom:
    """One factor of an axis; compared by identity, refined in place.

    Attributes:
        size: its length.
        kind: ``leaf``, ``product`` (``parts`` is one sequence) or ``sum`` (``parts`` are the segments in order).
    """

    size: int
    number: int
    kind: str = LEAF
    parts: list[Seq] = field(default_factory=list)

    def __repr__(self) -> str:
        if self.kind == LEAF:
            return f"{self.size}#{self.number}"
        if self.kind == PRODUCT:
            return "·".join(map(repr, self.parts[0]))
        return "(" + " | ".join("·".join(map(repr, part)) or "1" for part in self.parts) + ")"


Seq = tuple[Atom, ...]


@dataclass(frozen=True)
class Mark:
    """A remark that an axis must stay whole, with the reason; its leaves are known after all unifications.

    Attributes:
        op: number of the operation that was followed.
    """

    seq: Seq
    reason: str
    op: int = -1


class Axes:
    """The arena of atoms of one trace."""

    def __init__(self) -> None:
        self.count = 0
        self.marks: list[Mark] = []
        self.depth = 0
        self.steps = 0
        self.op = -1

    def leaf(self, size: int) -> Seq:
        """A fresh axis of one leaf; an axis of length 1 has no atoms."""
        if size == 1:
            return ()
        self.count += 1
        return (Atom(size, self.count),)

    def keep_whole(self, reason: str, *seqs: Seq) -> None:
        """Mark all factors of some axes to stay whole."""
        self.marks += [Mark(seq, reason, self.op) for seq in seqs if seq]

    def flat(self, seq: Iterable[Atom]) -> Seq:
        """The axis with its products opened: only leaves and sums remain."""
        result: list[Atom] = []
        for atom in seq:
            if atom.kind == PRODUCT:
                atom.parts[0] = self.flat(atom.parts[0])
                result.extend(atom.parts[0])
            else:
                result.append(atom)
        return tuple(result)

    def leaves(self, seq: Iterable[Atom]) -> list[Atom]:
        """All leaves of an axis and of the sums in it, in order, with repetitions."""
        found: list[Atom] = []
        for atom in self.flat(seq):
            if atom.kind == SUM:
                for part in atom.parts:
                    found.extend(self.leaves(part))
            else:
                found.append(atom)
        return found

    def unify(self, left: Seq, right: Seq, reason: str = "axes that do not line up") -> None:
        """Make two axes of the same length one. If their factors do not line up, both must stay whole, for ``reason``."""
        self.steps = 0 if self.depth == 0 else self.steps
        self.depth += 1
        try:
            self._unify(list(self.flat(left)), list(self.flat(right)), reason)
        finally:
            self.depth -= 1

    def _unify(self, a: list[Atom], b: list[Atom], reason: str) -> None:
        if size(a) != size(b):
            return self._give_up(a, b, reason)
        while a and b:
            self.steps += 1
            if self.steps > STEP_LIMIT or self.depth > DEPTH_LIMIT:
                return self._give_up(a, b, "axes shifted against each other")
            x, y = a[0], b[0]
            if x is y:
                del a[0], b[0]
            elif x.size == y.size:
                del a[0], b[0]
                self._equal(x, y, reason)
            elif x.kind == SUM and x.size > y.size:
                head, rest = self.take(b, x.size)
                if head is None:
                    return self._give_up(a, b, reason)
                b = list(rest)
                del a[0]
                self._spread(x, head, reason)
            elif y.kind == SUM and y.size > x.size:
                a, b = b, a
            elif x.size > y.size and x.size % y.size == 0:
                self._split(x, y.size)
            elif y.size % x.size == 0:
                self._split(y, x.size)
            else:
                return self._give_up(a, b, reason)
            a, b = list(self.flat(a)), list(self.flat(b))
        return None

    def _give_up(self, a: Sequence[Atom], b: Sequence[Atom], reason: str) -> None:
        self.keep_whole(reason, tuple(a), tuple(b))

    def _equal(self, x: Atom, y: Atom, reason: str) -> None:
        if x.kind == LEAF:
            self._refine(x, (y,))
        elif y.kind == LEAF:
            self._refine(y, (x,))
        else:
            self._spread(x, (y,), reason)

    def _spread(self, atom: Atom, seq: Seq, reason: str) -> None:
        """Unify a sum with an axis of the same length, segment by segment."""
        start = 0
        for part in list(atom.parts):
            length = size(part)
            self.unify(part, self.cut(seq, start, start + length), reason)
            start += length

    def _split(self, atom: Atom, outer: int) -> None:
        self._refine(atom, self.leaf(outer) + self.leaf(atom.size // outer))

    def _refine(self, atom: Atom, seq: Seq) -> None:
        atom.kind, atom.parts = PRODUCT, [seq]

    def take(self, seq: Sequence[Atom], length: int) -> tuple[Seq | None, Seq]:
        """The leading atoms whose product is ``length`` (None if there are none), and the rest; splits leaves."""
        rest = list(self.flat(seq))
        head: list[Atom] = []
        have = 1
        while have < length:
            if not rest:
                return None, ()
            atom = rest[0]
            need = length // have
            if length % have or (atom.size > need and (atom.kind != LEAF or atom.size % need)):
                return None, tuple(rest)
            if atom.size > need:
                self._split(atom, need)
                rest = list(self.flat(rest))
                atom = rest[0]
            head.append(atom)
            have *= atom.size
            del rest[0]
        return tuple(head) if have == length else None, tuple(rest)

    def cut(self, seq: Seq, start: int, stop: int) -> Seq:
        """The slice ``[start, stop)`` of an axis, as an axis; atoms that it cuts become sums."""
        seq = self.flat(seq)
        if not seq or (start == 0 and stop == size(seq)):
            return seq
        head, rest = seq[0], seq[1:]
        inner = size(rest)
        if start % inner == 0 and stop % inner == 0:
            return self._cut_atom(head, start // inner, stop // inner) + rest
        if start // inner == (stop - 1) // inner:
            index = start // inner
            self._cut_atom(head, index, index + 1)
            return self.cut(rest, start - index * inner, stop - index * inner)
        fresh = self.leaf(stop - start)
        self.keep_whole("a slice that cuts across the factors of an axis", seq, fresh)
        return fresh

    def _cut_atom(self, atom: Atom, start: int, stop: int) -> Seq:
        """A part of a leaf or a sum, not all of it."""
        if atom.kind == LEAF:
            points = sorted({0, start, stop, atom.size})
            atom.parts = [self.leaf(high - low) for low, high in zip(points, points[1:])]
            atom.kind = SUM
        self._cut_sum(atom, start)
        self._cut_sum(atom, stop)
        chosen, at = [], 0
        for part in atom.parts:
            if start <= at and at + size(part) <= stop:
                chosen.append(part)
            at += size(part)
        return chosen[0] if len(chosen) == 1 else self.concatenate(chosen)

    def _cut_sum(self, atom: Atom, point: int) -> None:
        """Make ``point`` a border between two segments."""
        at = 0
        for index, part in enumerate(atom.parts):
            length = size(part)
            if at < point < at + length:
                low = self.cut(part, 0, point - at)
                high = self.cut(part, point - at, length)
                atom.parts[index : index + 1] = [low, high]
                return
            at += length

    def concatenate(self, parts: Sequence[Seq]) -> Seq:
        """An axis whose segments are the given axes in order."""
        if len(parts) == 1:
            return parts[0]
        self.count += 1
        return (Atom(sum(size(part) for part in parts), self.count, SUM, [tuple(part) for part in parts]),)


def size(seq: Iterable[Atom]) -> int:
    """The length of an axis: the product of its atoms (1 for none)."""
    return prod(atom.size for atom in seq)
