"""Find the smallest modular file of a flat model that a conversion proves."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.authoring.allowed_differences import UNUSED, Parent, relax, unused_definitions, without_unused
from modular_converter.authoring.attempt import FileDifference, Proof
from modular_converter.authoring.choice import (
    Placed,
    cheapest_first,
    choose_parents,
    estimates,
    inherit_from,
    is_worth_it,
)
from modular_converter.authoring.draft import Draft, How, definitions_of, first_draft, how_of_class
from modular_converter.authoring.flat_model import FlatModel
from modular_converter.authoring.library_index import LibraryIndex
from modular_converter.authoring.proof import prove_draft
from modular_converter.authoring.sources import SourceFile, files_in_circles, find_sources, open_source
from modular_converter.convert.batch import without_collector
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.source.library import Library
from modular_converter.model.index import index_module


MOST_OTHERS = 2
"""The most parents of one class that are tried."""


@dataclass(frozen=True)
class Modularized:
    """A flat model as a modular file."""

    flat: FlatModel
    proof: Proof | None
    """The modular file, proven for all files except those in `left`; None if it is proven for no file."""
    left: Mapping[str, str]
    """File that stays written by hand -> the reason."""
    accepted: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Class whose docstrings or comments become its parent's -> its text before and after."""
    unused: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """File -> its definitions that nothing uses, and that go."""

    @property
    def lines_back(self) -> int:
        """The lines of the files that the modular file gives back."""
        return self.flat.without(self.left).lines if self.proof else 0

    @property
    def worthwhile(self) -> Modularized:
        """The same, without a modular file that inherits nothing or saves no line; one of generated files exists already."""
        if self.proof is None or self.flat.is_generated:
            return self
        takes = any(how is not How.WRITTEN for how in self.proof.draft.how.values())
        if takes and self.proof.lines < self.lines_back:
            return self
        reason = f"a modular file of {self.proof.lines} lines would save none of {self.lines_back}"
        reason = reason if takes else "it has nothing in common with another model that would save lines"
        left = {file.path: reason for file in self.flat.without(self.left).files}
        return Modularized(self.flat, None, {**self.left, **left})

    @property
    def rewritten(self) -> Mapping[str, str]:
        """Generated file that the next conversion writes with the same code -> the difference, of order or layout."""
        return self.proof.rewritten if self.proof else {}


@without_collector()
def modularize(flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str] = ()) -> Modularized:
    """Write a flat model as the smallest modular file that a conversion proves. Nothing is written to disk.

    Args:
        preferred: models that a person prefers as parents.

    Raises `ConversionError` where the formatter cannot be used.
    """
    left = files_in_circles(flat, index, library)
    rest = flat.without(left)
    while rest.files:
        short = _shortest(rest, index, library, preferred)
        if short.round_trips:
            return Modularized(flat, short, left)
        partly = _with_failing_files_written_out(short, library)
        if partly.round_trips:
            return Modularized(flat, partly, left)
        full = written_out(rest, library)
        if full.round_trips:
            return Modularized(flat, full, left)
        if same := [one for one in (short, partly, full) if one.has_same_code]:
            return Modularized(flat, min(same, key=lambda one: one.lines), left)
        left.update(_in_the_way(max(short, partly, full, key=lambda one: one.lines_back), library))
        rest = rest.without(left)
    return Modularized(flat, None, left)


def modularize_allowing(
    flat: FlatModel,
    index: LibraryIndex,
    library: Library,
    preferred: Collection[str] = (),
    allowed: Collection[str] = (),
) -> Modularized:
    """The same, without definitions that nothing uses, and with docstrings and comments of parents in place of the
    model's own if that saves lines.

    Args:
        allowed: what may differ: `docstrings`, `comments`, `unused`.
    """
    if UNUSED in allowed:
        rest, going = without_unused(flat, library)
        found = modularize_allowing(rest, index, library, preferred, [one for one in allowed if one != UNUSED])
        gone = {path: names for path, names in going.items() if path not in found.left}
        return replace(found, flat=flat, unused=gone)
    exact = modularize(flat, index, library, preferred)
    if not allowed or exact.proof is None:
        return exact
    parents = _likely_parents(flat, find_sources(flat, index, library, preferred))
    parents.update((name, (one.source, one.parent)) for name, one in exact.proof.draft.placed.items())
    relaxed, accepted = relax(flat, parents, allowed, flat.model_names)
    if not accepted:
        return exact
    other = modularize(relaxed, index, library, preferred)
    if other.proof is None or other.left != exact.left or other.proof.lines >= exact.proof.lines:
        return exact
    return replace(other, flat=flat, accepted=accepted)


def _likely_parents(flat: FlatModel, sources: Sequence[SourceFile]) -> dict[str, Parent]:
    """For each class the class that shares the most lines with it, by the index."""
    found: dict[str, Parent] = {}
    for name in definitions_of(flat.files):
        likely = [one for one in sources if one.likely.get(name)]
        if likely:
            best = max(likely, key=lambda one: one.shared.get(name, 0.0))
            found[name] = (best, best.likely[name][0])
    return found


def _shortest(flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str]) -> Proof:
    """The proof that starts with parents for as many classes as possible."""
    sources = find_sources(flat, index, library, preferred)
    year = index.years.get(flat.files[-1].path, 0)
    estimated = estimates(flat, sources, library)
    chosen = _settled(flat, choose_parents(flat, estimated, preferred, year), library)
    placed: dict[str, Placed] = {}
    others: dict[str, tuple[Placed, ...]] = {}
    for name, some in estimated.items():
        ranked = [chosen[name], *sorted(some, key=lambda one: one.heir.lines)] if name in chosen else []
        tried = _distinct(ranked)[: 1 + MOST_OTHERS]
        distinct = _distinct([one for one in map(_merged(name, flat, library), tried) if one is not None])
        if distinct:  # the estimates may have been too low
            placed[name], *rest = cheapest_first(distinct, chosen, preferred, year)
            others[name] = tuple(rest)
    return prove_draft(first_draft(flat, placed, others, sources), library)


def _distinct(some: Sequence[Placed]) -> list[Placed]:
    """The parents without duplicates: the same class under another renaming that gives the same text."""
    return list({(one.source.path, one.heir.text): one for one in reversed(some)}.values())[::-1]


def _merged(name: str, flat: FlatModel, library: Library) -> Callable[[Placed], Placed | None]:
    """A function that checks an estimate by merging the class with its parent."""
    statement = flat.definitions[name][1]

    def merged(one: Placed) -> Placed | None:
        other = inherit_from(statement, one.source, one.parent, flat, library)
        return other if other is not None and (flat.is_generated or is_worth_it(other, statement, flat)) else None

    return merged


def _settled(flat: FlatModel, chosen: Mapping[str, Placed], library: Library) -> dict[str, Placed]:
    """The choice with each source under the prefix that its heirs ask for together."""
    settled = dict(chosen)
    for path in dict.fromkeys(one.source.path for one in chosen.values()):
        heirs = {name: one for name, one in chosen.items() if one.source.path == path}
        voters = {name: one for name, one in heirs.items() if how_of_class(name, flat, settled) is How.HEIR}
        source = open_source(path, [(name, one.original) for name, one in (voters or heirs).items()], flat, library)
        for name, one in heirs.items():
            if source is not None and source.prefix != one.source.prefix:
                parent = source.definitions.renamer.name(one.original)
                again = inherit_from(flat.definitions[name][1], source, parent, flat, library)
                if again is not None:
                    settled[name] = again
                else:
                    del settled[name]
    return settled


def _with_failing_files_written_out(proof: Proof, library: Library) -> Proof:
    """The proof in which the files that differ are written out, and the others stay as they are."""
    failing = [one.file for one in proof.differences if not one.round_trips]
    changes = {name: How.WRITTEN for name in definitions_of(failing) if name in proof.draft.how}
    return prove_draft(proof.draft.with_how(changes), library)


def written_out(flat: FlatModel, library: Library) -> Proof:
    """The proof of the modular file in which everything is written out."""
    return prove_draft(Draft(flat, dict.fromkeys(definitions_of(flat.files), How.WRITTEN), {}, {}, {}), library)


def _in_the_way(proof: Proof, library: Library) -> dict[str, str]:
    """The files that differ even when everything is written out, with the reasons: those that do not come back alone,
    else one that does not come back beside the others.
    """
    flat = proof.draft.flat
    failing = [one for one in proof.differences if not one.round_trips and not proof.conversion.failed]
    # The other differences may follow from definitions that one file lacks: `__all__` is one list for all files.
    lacking = [one for one in failing if one.missing or one.other or one.extra] or failing
    if len(flat.files) == 1:
        errors = [one.message for one in proof.conversion.findings if one.is_error]
        reasons = [_reason(one, library) for one in lacking] or errors or ["it cannot be converted"]
        return {flat.files[0].path: reasons[0]}
    found: dict[str, str] = {}
    for file in [one.file for one in lacking] or flat.files:
        alone = written_out(flat.without([one.path for one in flat.files if one is not file]), library)
        if not alone.round_trips:
            found.update(_in_the_way(alone, library))
    return found or _shortest_in_the_way(lacking, flat, library)


def _shortest_in_the_way(lacking: Sequence[FileDifference], flat: FlatModel, library: Library) -> dict[str, str]:
    """The shortest file without which the others are proven, with the reason; the shortest of those that differ if none
    is enough. Two files may need contradictory definitions: `AutoConfig` from two modules, two classes of one name.
    """
    differing = {one.file.path: one for one in lacking}
    by_length = sorted(flat.files, key=lambda one: one.text.count("\n"))
    enough = (one for one in by_length if written_out(flat.without([one.path]), library).round_trips)
    shortest = next((one for one in by_length if one.path in differing), by_length[0])
    path = next(enough, shortest).path
    if path in differing:
        return {path: _reason(differing[path], library)}
    with_it = ", ".join(f"{os.path.basename(one.file.path)} ({one.reason})" for one in lacking)
    return {path: f"if it were generated, these files would not come back: {with_it or 'the other files'}"}


def _reason(difference: FileDifference, library: Library) -> str:
    """The reason why a file is not proven, with the definitions that could go or that its formatter would change."""
    file = difference.file
    unused = unused_definitions(file, library) if difference.missing else []
    if unused:
        return f"{difference.reason}; with `--allow {UNUSED}` the unused definitions would go: {', '.join(unused)}"
    if not (difference.other or file.is_generated):
        return difference.reason
    text = format_files({file.path: file.text}, library.settings).texts[file.path]
    if file.is_generated and difference.is_same_code and text != file.text:
        return f"{difference.reason}; the formatter changes them: format the file first"
    formatted, own = index_module(text, file.path).definitions, file.module.definitions
    changed = [name for name in difference.other if name in formatted and formatted[name].text != own[name].text]
    if not changed:
        return difference.reason
    return f"{difference.reason}; the formatter changes {', '.join(changed)}: format the file first"
