"""The classes of the modular file as they are generated."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from modular_converter.convert.inherit.ancestors import lineage, sets_attribute
from modular_converter.convert.inherit.merge import Merged, merge_class
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.names import ModelNames
from modular_converter.convert.source.rename import RenamedModule
from modular_converter.facts import Surroundings
from modular_converter.findings import ClassFinding, ConversionError, Finding, Location, locate
from modular_converter.model.class_blocks import ClassSpan, parse_class
from modular_converter.model.members import names_in_class
from modular_converter.model.module import Role, Statement
from modular_converter.model.overriding import AddedDecorators
from modular_converter.rules import input_files
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class _KnownMerge:
    """A generated class, with the questions of its merge about other classes, and the answers."""

    merged: Merged
    answers: Mapping[tuple[str, tuple[str, ...]], object]


_QUESTIONS = ("is_set_above", "binds", "has_method")
"""The fields of `Surroundings` that a merge asks. Most merges ask little, so that it is not answered before."""


def merge_once(
    child: Statement, parent: Statement, parent_base: str, names: ModelNames, settings: Settings, around: Surroundings
) -> Merged:
    """`merge_class`, or its result for the same classes where all questions have the same answers still. Drafts
    of a modular file differ in a class or two: of 630 merges for eight models, 116 are made (27 November 2026).

    Of the names of the module and of the ancestors only those are looked at that the two classes can ask for.
    """
    named = around.module_names & (child.uses | parent.uses)
    above = {base: around.ancestors[base] for base in child.bases if base in around.ancestors}
    classes = (child.text, parent.text, parent.name, parent_base, names, settings)
    mappings = (frozenset(some.items()) for some in (above, around.siblings, around.in_front))
    known = _known_merges(classes, named, around.added, *mappings)
    for merge in known:
        if all(getattr(around, question)(*asked) == answer for (question, asked), answer in merge.answers.items()):
            return merge.merged
    answers: dict[tuple[str, tuple[str, ...]], object] = {}

    def noting(question: str) -> Any:
        ask = getattr(around, question)
        return lambda *asked: answers.setdefault((question, asked), ask(*asked))

    asking = replace(around, module_names=named, ancestors=above, **{one: noting(one) for one in _QUESTIONS})
    merged = merge_class(*classes, asking)
    known.append(_KnownMerge(merged, answers))
    return merged


@functools.lru_cache(maxsize=256)
def _known_merges(*key: object) -> list[_KnownMerge]:
    """The merges of one child and one parent."""
    return []


@dataclass(frozen=True)
class BuiltClass:
    """A class of the modular file as it is generated."""

    statement: Statement
    """As the modular file has it."""
    text: str
    lead: str
    uses: frozenset[str]
    neighbour: str = ""
    """`Neighbour.dotted` of its parent; "" without one."""
    parent: Statement | None = None
    """Its parent, renamed."""
    findings: tuple[Finding, ...] = ()
    """Findings about losses of the merge."""
    plan: tuple[ClassSpan, ...] = ()
    """Of a class with a parent: the pieces of `text`."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.statement.name


def build_classes(neighbours: Neighbourhood, library: Library) -> Mapping[str, BuiltClass]:
    """Merge each class that has a neighbour parent with it; the others stay as written. In the file's order.

    Raises `ConversionError` with the overrides that cannot be merged.
    """
    built: dict[str, BuiltClass] = {}
    ancestors: dict[str, frozenset[str]] = {}
    for name, statement in neighbours.classes.items():
        library.note(name)
        found = neighbours.parent_of(statement)
        above = set(statement.bases)
        if found is not None:
            above |= {*neighbours.neighbours[found[1]].definitions[found[2]].bases}
        ancestors[name] = frozenset(above).union(*(ancestors.get(base, ()) for base in above))
        built[name] = (
            _merge(statement, found, ancestors, built, neighbours, library) if found else _as_written(statement)
        )
    if not any(one.findings for one in built.values()):
        return built
    source = library.text(neighbours.target.path)
    for name, one in built.items():
        built[name] = replace(one, findings=tuple(finding.with_source(source) for finding in one.findings))
    errors = [finding for one in built.values() for finding in one.findings if finding.is_error]
    if errors:
        raise ConversionError(*errors)
    return built


def _as_written(statement: Statement) -> BuiltClass:
    return BuiltClass(statement, statement.text, statement.lead, statement.uses)


def _merge(
    statement: Statement,
    found: tuple[str, str, str],
    ancestors: Mapping[str, frozenset[str]],
    built: Mapping[str, BuiltClass],
    neighbours: Neighbourhood,
    library: Library,
) -> BuiltClass:
    base, dotted, parent_name = found
    parent = neighbours.neighbours[dotted].definitions[parent_name]
    siblings = {name: built[name].text for name in statement.bases if name in built}
    definitions = neighbours.neighbours[dotted].definitions
    renamed = {definitions.renamer.name(alias): name for alias, name in definitions.module.aliases.items()}
    added = AddedDecorators(library.settings.added_decorators, neighbours.target.module.aliases, renamed)
    around = Surroundings(
        added,
        neighbours.target.module.names,
        siblings,
        ancestors,
        _in_front(statement, base, siblings, neighbours, library),
        lambda method, attribute: _is_set_above(neighbours, base, method, attribute, library),
        lambda name: _bound_in(name, built, definitions),
        lambda name, method: _has_method(name, method, neighbours, dotted, library),
    )
    try:
        merged = merge_once(statement, parent, base, neighbours.target.names, library.settings, around)
    except SyntaxError as error:
        place = Location(neighbours.target.path, statement.line)
        reason = f"{error.msg}, as libcst reads this class or its parent"
        raise ConversionError(input_files.syntax_error(place, reason)) from None
    findings = tuple(_finding(finding, statement, neighbours.target.path) for finding in merged.findings)
    return BuiltClass(statement, merged.text, parent.lead, merged.uses, dotted, parent, findings, merged.plan)


def _in_front(
    statement: Statement, parent: str, siblings: Mapping[str, str], neighbours: Neighbourhood, library: Library
) -> Mapping[str, tuple[str, ...] | None]:
    """The bases in front of the parent, see `Surroundings`."""
    bases = statement.bases[: statement.bases.index(parent)] if parent in statement.bases else ()
    if not bases:
        return {}
    module = neighbours.target.module
    above = {one.name for one in lineage(parent, module, library) if one is not None}
    found: dict[str, tuple[str, ...] | None] = {}
    for base in bases:
        classes = [*lineage(base, module, library)]
        readable = [one for one in classes if one is not None]
        texts = tuple(one.text for one in readable)
        if base in siblings:
            texts = (siblings[base], *texts[1:])
        is_apart = len(readable) == len(classes) and above.isdisjoint(one.name for one in readable)
        found[base] = texts if is_apart else None
    return found


def _bound_in(
    name: str, built: Mapping[str, BuiltClass], parents: RenamedModule, below: frozenset[str] = frozenset()
) -> frozenset[str] | None:
    """The names that a class of the generated file and its ancestors there bind; None for a class from elsewhere."""
    own = built.get(name)
    if name in below or (own is None and (name not in parents or parents.role(name) is not Role.CLASS)):
        return None
    block = parse_class(own.text if own else parents[name].text)
    inherited = (_bound_in(base, built, parents, below | {name}) for base in block.bases)
    return block.binds.union(*filter(None, inherited))


def _has_method(base: str, method: str, neighbours: Neighbourhood, dotted: str, library: Library) -> bool:
    """Whether a base from elsewhere, or one of its ancestors, has a method, as far as they can be read."""
    modules = (neighbours.target.module, neighbours.neighbours[dotted].neighbour.module)
    module = next((one for one in modules if base.partition(".")[0] in one.names), None)
    above = lineage(base, module, library, f"def {method}(") if module is not None else ()
    return any(one is not None and method in names_in_class(one.text) for one in above)


def _is_set_above(neighbours: Neighbourhood, base: str, method: str, attribute: str, library: Library) -> bool:
    """Whether a method of the ancestors of a parent, as far as these can be read, sets an attribute, renamed or not."""
    taken = neighbours.resolution.taken[base]
    renamed = neighbours.neighbours[taken.neighbour]
    names = {
        attribute,
        *(
            name
            for name in renamed.neighbour.module.definitions[taken.name].uses
            if renamed.definitions.renamer.name(name) == attribute
        ),
    }
    return any(
        one is not None and sets_attribute(one, method, name)
        for name in sorted(names)
        for one in itertools.islice(lineage(taken.name, renamed.neighbour.module, library, f".{name}"), 1, None)
    )


def _finding(finding: ClassFinding, statement: Statement, path: str) -> Finding:
    """A finding with its place in the modular file."""
    try:
        place = locate(path, finding.node, statement.text)
    except IndexError:  # the class was re-indented before it was parsed
        place = Location(path)
    below = statement.line - 1
    end = None if place.end_line is None else place.end_line + below
    return finding.diagnose(replace(place, line=place.line + below, end_line=end))
