"""Convert a draft, compare, and mend it until everything comes back: the proof of a modular file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modular_converter.authoring.comparison import FileDifference, compare
from modular_converter.authoring.draft import Draft, How, closed, render
from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.source import lexer
from modular_converter.settings.values import Settings


MOST_ROUNDS = 40
"""Conversions of one draft at most; each makes at least one definition longer."""


@dataclass(frozen=True)
class Proof:
    """A draft with what it converts to."""

    draft: Draft
    text: str
    """The modular file, formatted."""
    conversion: Conversion
    differences: tuple[FileDifference, ...]
    reasons: Mapping[str, str]
    """Definition -> why it is not as short as it was first tried."""

    @property
    def has_come_back(self) -> bool:
        """Whether every file is proven."""
        return not self.conversion.failed and all(one.has_come_back for one in self.differences)

    @property
    def lines(self) -> int:
        """The lines of the modular file."""
        return self.text.count("\n")


def attempt(draft: Draft, settings: Settings, reasons: Mapping[str, str]) -> Proof:
    """Convert a draft in memory and compare the result with the flat model. Nothing is written."""
    draft = closed(draft)
    path = draft.flat.modular
    text = format_files({path: render(draft)}, settings).texts[path]
    conversion = Run(settings, {path: text}, workers=1).convert([path])[0]
    return Proof(draft, text, conversion, compare(draft.flat, conversion.files), reasons)


def prove(draft: Draft, settings: Settings) -> Proof:
    """Mend a draft round by round. The last one is returned, whether it has come back or not."""
    reasons: dict[str, str] = {}
    proof = attempt(draft, settings, reasons)
    for _ in range(MOST_ROUNDS):
        if proof.has_come_back:
            return proof
        mended = _mend(proof, reasons)
        if mended is None:
            return _in_order(proof, settings)
        proof = attempt(mended, settings, reasons)
    return proof


def _mend(proof: Proof, reasons: dict[str, str]) -> Draft | None:
    """The draft with the definitions longer that did not come back; None where there is nothing left to try."""
    draft = proof.draft
    changes: dict[str, How] = {}
    needed: set[str] = set()
    for name, reason in _complaints(proof):
        longer = _longer(name, draft, reason)
        if longer is not None:
            changes[name] = longer
            reasons[name] = reason
    if not changes:
        for difference in proof.differences:
            needed |= {name for name in map(_bound, difference.imports) if name not in draft.needed}
    if not changes and not needed:
        return None
    return replace(draft.with_how(changes), needed=draft.needed | needed)


def _bound(key: str) -> str:
    return key.partition(".")[0]


def _complaints(proof: Proof) -> Iterator[tuple[str, str]]:
    """The definitions to be written longer, with the reasons."""
    for finding in proof.conversion.diagnostics:
        if finding.is_error:
            yield from ((name, finding.message) for name in _at_line(proof, finding.location.line or 0))
    if proof.conversion.failed:
        return
    for difference in proof.differences:
        yield from ((name, "it did not come") for name in difference.missing)
        yield from ((name, "it came with another text") for name in difference.other)
        for name in difference.extra:
            yield from ((heir, f"with its parent came {name}") for heir in _pullers(name, proof.draft))


def _at_line(proof: Proof, line: int) -> Iterator[str]:
    """The definition of the modular file that a line belongs to."""
    module = proof.draft.flat.as_modular(proof.text).module
    above = [one for one in module.statements if one.line <= line and one.name in proof.draft.how]
    if above:
        yield above[-1].name


def _pullers(name: str, draft: Draft) -> Iterator[str]:
    """The heirs whose neighbour has a definition that is too much, and that mention it; else all with that neighbour."""
    near = [
        one
        for one, how in draft.how.items()
        if how is How.HEIR and name in draft.placed[one].source.definitions
    ]
    users = [one for one in near if name in lexer.identifiers(draft.statement(one).text)]
    imported = [one for one, how in draft.how.items() if how is How.IMPORTED]
    yield from users or near or imported


def _longer(name: str, draft: Draft, reason: str) -> How | None:
    """The next longer way to have a definition; None where it is written out already."""
    how = draft.how.get(name)
    if how is None or how is How.WRITTEN:
        return None
    if how is How.ALONG and name in draft.placed:
        return How.HEIR
    if how is How.ALONG and name in draft.imports:
        return How.IMPORTED
    return How.WRITTEN


def _in_order(proof: Proof, settings: Settings) -> Proof:
    """Write single definitions longer as long as this brings more definitions into their places."""
    tried: set[tuple[str, How]] = set()
    for _ in range(MOST_ROUNDS):
        if proof.has_come_back:
            break
        change = next((one for one in _order_changes(proof) if one not in tried), None)
        if change is None:
            break
        tried.add(change)
        name, how = change
        other = attempt(proof.draft.with_how({name: how}), settings, proof.reasons)
        if not other.conversion.failed and _in_place(other) > _in_place(proof):
            proof = replace(other, reasons={**proof.reasons, name: "the order of the definitions"})
    return proof


def _in_place(proof: Proof) -> int:
    """The definitions that stand where they should, up to the first that does not, over all files."""
    number = 0
    for difference in proof.differences:
        names = list(difference.file.module.definitions)
        same = difference.is_same_code
        number += (names.index(difference.order[0]) if difference.order else len(names)) if same else -len(names)
    return number


def _order_changes(proof: Proof) -> Iterator[tuple[str, How]]:
    """The definitions that may be had otherwise so that the order changes, the most promising first."""
    draft = proof.draft
    for difference in proof.differences:
        if difference.order is None or not difference.file.is_generated:
            continue
        names = list(dict.fromkeys((*difference.order, *_between(difference))))
        for wanted in (How.HEIR, How.IMPORTED, How.WRITTEN):
            for name in names:
                if _is_longer(name, wanted, draft):
                    yield name, wanted


def _is_longer(name: str, how: How, draft: Draft) -> bool:
    """Whether a definition can be had in this longer way."""
    ways = list(How)
    possible = {How.HEIR: name in draft.placed, How.IMPORTED: name in draft.imports}.get(how, True)
    return possible and ways.index(how) > ways.index(draft.how[name])


def _between(difference: FileDifference) -> Sequence[str]:
    """The definitions of the flat file from the first place that differs on, up to the one that stands there."""
    assert difference.order is not None
    names = list(difference.file.module.definitions)
    start, end = sorted(map(names.index, difference.order))
    return names[start : end + 1]
