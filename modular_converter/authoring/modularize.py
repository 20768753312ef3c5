"""Find the smallest modular file of a flat model that a conversion proves; and what `--allow` lets differ: docstrings and
comments that become those of the parents, and definitions that nothing uses.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.authoring.attempt import FileDifference, Proof
from modular_converter.authoring.class_changes import member_key
from modular_converter.authoring.draft import Draft, How, definitions_of, first_draft, how_of_class
from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.authoring.library_index import LibraryIndex, normal
from modular_converter.authoring.proof import prove_draft
from modular_converter.authoring.sources import (
    Placed,
    SourceFile,
    cheapest_first,
    choose_parents,
    estimates,
    files_in_circles,
    find_sources,
    inherit_from,
    is_worth_it,
    open_source,
)
from modular_converter.convert.batch import without_collector
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.imports import names_in_annotations
from modular_converter.convert.inherit.build import rename_class
from modular_converter.convert.schedule import reached
from modular_converter.convert.source.library import Library, ModelNames
from modular_converter.model import lexer
from modular_converter.model.class_blocks import ClassBlock, Member, block_lines, parse_class
from modular_converter.model.index import index_module, is_docstring
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import decorators_of, parse


UNUSED = "unused"
"""The word of `--allow` that lets unused definitions go."""
_WITHOUT_EFFECT = frozenset({"torch.jit.script", "torch.jit.script_if_tracing", "functools.lru_cache", "lru_cache"})
"""The decorators that enter a function nowhere."""
_VIEWS = frozenset({"items", "keys", "values"})
"""The methods that a constant may call and still have no effect."""


def unused_definitions(file: FlatFile, library: Library) -> list[str]:
    """The functions and constants of a file that no conversion generates and nothing would miss: no class uses them,
    `__all__` does not name them, they have no effect when they are defined, and no file of the package imports them.
    """
    definitions = file.module.definitions
    if file.is_generated or "__all__" not in definitions:  # without `__all__`, `import *` takes every name
        return []
    in_strings = {name for name in definitions if f'"{name}"' in file.text or f"'{name}'" in file.text}
    used = _needed(file.module, {*file.module.exported, *in_strings})
    kept = {name for name, one in definitions.items() if name in used or not _may_go(one)}
    kept |= _named_elsewhere(file.path, definitions.keys() - kept, library)
    kept = _needed(file.module, kept)
    return [name for name in definitions if name not in kept]


def without_unused(flat: FlatModel, library: Library) -> tuple[FlatModel, dict[str, list[str]]]:
    """A model without its unused definitions, and these by file."""
    going = {file.path: names for file in flat.files if (names := unused_definitions(file, library))}
    files = tuple(_without(file, going.get(file.path, ())) for file in flat.files)
    return replace(flat, files=files), going


def _without(file: FlatFile, names: Collection[str]) -> FlatFile:
    statements = tuple(one for one in file.module.statements if one.name not in names)
    return replace(file, module=replace(file.module, statements=statements)) if names else file


def _needed(module: Module, kept: Collection[str]) -> set[str]:
    """The definitions that are kept, those that generated files have, and those that one of these uses."""
    definitions = module.definitions
    needed = {name for name, one in definitions.items() if one.role is Role.CLASS or name in kept}
    for statement in module.statements:
        if statement.name not in definitions:
            needed |= (statement.uses | statement.condition) & definitions.keys()

    def used(name: str) -> Collection[str]:
        one = definitions[name]
        return (one.uses | names_in_annotations(one.text, frozenset(definitions))) & definitions.keys()

    return reached(needed, used)


def _may_go(statement: Statement) -> bool:
    """Whether a function or an assignment has no effect but its name."""
    if statement.name.startswith("__") or statement.is_store or statement.joined or statement.binds:
        return False
    node = parse(statement.text).body[0]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return all(one in _WITHOUT_EFFECT for one in decorators_of(node))
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return all(isinstance(one, ast.Attribute) and one.attr in _VIEWS for one in calls)


def _named_elsewhere(path: str, names: Collection[str], library: Library) -> set[str]:
    """The names that another file of the package imports from a file, or names with its module."""
    if not names:
        return set()
    stem = os.path.splitext(os.path.basename(path))[0]
    imported = re.compile(rf"\b{re.escape(stem)}\s+import\s*(\([^)]*\)|[^\n\\]*(?:\\\n[^\n\\]*)*)")
    attribute = re.compile(rf"\b{re.escape(stem)}\.({'|'.join(map(re.escape, names))})\b")
    found: set[str] = set()
    for text in _texts_beside(path, stem, library):
        found.update(attribute.findall(text))
        found.update(word for line in imported.findall(text) for word in re.findall(r"\w+", line))
    return found & {*names}


def _texts_beside(path: str, stem: str, library: Library) -> Iterator[str]:
    """The texts of the other Python files of the package of a file that name its module."""
    top = os.path.dirname(os.path.dirname(path))
    while library.exists(os.path.join(os.path.dirname(top), "__init__.py")):
        top = os.path.dirname(top)
    for folder, _, files in os.walk(top):
        for name in files:
            other = os.path.join(folder, name)
            if name.endswith(".py") and other != path:
                text = library.text_if_readable(other) or ""
                if stem in text:
                    yield text


DOCSTRINGS, COMMENTS = "docstrings", "comments"


Parent = tuple[SourceFile, str]
"""A file and the name, in the target, of a class in it."""


def relax(
    flat: FlatModel, parents: Mapping[str, Parent], allowed: Collection[str], names: ModelNames
) -> tuple[FlatModel, dict[str, tuple[str, str]]]:
    """A flat model whose classes have the docstrings and comments of their parents; and each class that changes, with its
    own text and the new one.

    Args:
        parents: the classes with the parents that they have, or may have when only code counts.
        allowed: what may differ: `docstrings`, `comments`.
        names: the names of the models of the library.
    """
    accepted: dict[str, tuple[str, str]] = {}
    for name, (source, parent) in parents.items():
        old = flat.definitions[name][1].text
        new = _with_words(old, source.definitions[parent].text, parent, allowed, names)
        if new is not None and new != old:
            accepted[name] = (old, new)
    files = tuple(_with_classes(file, accepted) for file in flat.files)
    return replace(flat, files=files), accepted


def _with_words(text: str, parent: str, name: str, allowed: Collection[str], names: ModelNames) -> str | None:
    """A class with the words of its parent wherever its code is the parent's; None where it cannot be read.

    Args:
        parent: the text of the parent, which is called `name` in it.
    """
    try:
        own = parse_class(text)
        inherited = parse_class(parent if own.node.name == name else rename_class(parent, name, own.node.name, names))
        new = _joined(own, inherited, "".join(block_lines(text)[1]), allowed)
        same = _code(new, allowed) == _code(text, allowed)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return new if same else None


def _joined(own: ClassBlock, inherited: ClassBlock, text: str, allowed: Collection[str]) -> str:
    """The lines of a class; members that differ from the parent's only in words are replaced by the parent's."""
    lines = text.split("\n")
    header = "".join(f"{line}\n" for line in lines[: own.body_line - 1])
    theirs = {member_key(member): member for member in inherited.members}
    docstring = inherited.docstring if DOCSTRINGS in allowed and inherited.docstring else own.docstring
    members = (_either(member, theirs.get(member_key(member)), allowed) for member in own.members)
    return (header + docstring + "".join(member.render() for member in members)).rstrip("\n")


def _either(own: Member, inherited: Member | None, allowed: Collection[str]) -> Member:
    if inherited is None or _code(own.text, allowed, member=True) != _code(inherited.text, allowed, member=True):
        return own
    keeps_lead = COMMENTS not in allowed and normal(own.lead) != normal(inherited.lead)
    return own if keeps_lead else inherited


def _code(text: str, allowed: Collection[str], *, member: bool = False) -> str:
    """The parts that two texts must share: the syntax tree, without docstrings if these may differ, and the comments
    unless they may differ.
    """
    tree = parse(f"class _:\n{text}" if member else text)
    if DOCSTRINGS in allowed:
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt) and is_docstring(body[0]):
                body[0] = ast.Pass()
    comments = (text[one.start : one.end] for one in lexer.tokens(text) if one.kind == "comment")
    return "\n".join((ast.dump(tree), *(map(str.strip, comments) if COMMENTS not in allowed else ())))


def _with_classes(file: FlatFile, accepted: Mapping[str, tuple[str, str]]) -> FlatFile:
    """A file with the new texts of its classes."""
    text = file.text
    statements = []
    for statement in file.module.statements:
        old, new = accepted.get(statement.name, ("", ""))
        if old and statement.text == old:
            text = text.replace(old, new)
            statement = replace(statement, text=new, known_uses=None)
        statements.append(statement)
    return replace(file, text=text, module=replace(file.module, statements=tuple(statements)))


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
        # The files that differ are written out, and the others stay as they are.
        failing = [one.file for one in short.differences if not one.round_trips]
        changes = {name: How.WRITTEN for name in definitions_of(failing) if name in short.draft.how}
        partly = prove_draft(short.draft.with_how(changes), library)
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
