"""Names in `__all__`, and in other lists of classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Edit, Finding, Fix, Rule, did_you_mean, split_lines
from modular_converter.rules._words import at, exports, subject


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts


MISSING_FROM_ALL = Rule("MC309", "missing-from-all", "a public class is missing from `__all__`", unsafe_fix=True)


def check_missing_from_all(facts: Facts) -> Iterator[Finding]:
    """Find classes that `__all__` lacks, and that are heads or whose parents are exported by their own files."""
    missing = (one for one in facts.classes.values() if one.name not in facts.exported)
    public = [one for one in missing if _is_public(one, facts)]
    for one in public if facts.exported else ():
        message, cure = f"public class `{one.name}` is missing from `__all__`", f'Add `"{one.name}"` to `__all__`.'
        yield MISSING_FROM_ALL.finding(facts.at_class(one), message, help=cure)
    if public and not facts.exported and "__all__" not in facts.source and _library_exports(facts):
        names = ", ".join(f'"{one.name}"' for one in public)
        yield MISSING_FROM_ALL.finding(
            facts.at_class(public[0]),
            f"public class `{public[0].name}` is exported by no file: the modular file has no `__all__`",
            help=f"Write `__all__ = [{names}]` at the end of the file.",
        )


def _library_exports(facts: Facts) -> bool:
    """Whether a neighbour has an `__all__`; without one it does not matter, if there are no neighbours."""
    neighbours = [one.parent.neighbour for one in facts.classes.values() if one.parent is not None]
    return not neighbours or any(map(facts.exports_of, neighbours))


def _is_public(one: ClassFacts, facts: Facts) -> bool:
    if one.name.startswith("_"):
        return False
    is_exported = one.parent is not None and one.parent.original in facts.exports_of(one.parent.neighbour)
    return is_exported or _is_head(one.name, facts)


def _is_head(name: str, facts: Facts) -> bool:
    """Whether a class is named for a task, and is a model: an ancestor is the base of all models."""
    if not re.search(r"For[A-Z]", name):
        return False
    bases = (base for members in facts.lineage(name) for base in members.base_names)
    return any(base.endswith(facts.model_base) for base in bases)


def fix_missing_from_all(text: str, finding: Finding) -> Fix | None:
    """Add the name at the end of `__all__`."""
    found = exports(text)
    if found is None or not found[0]:
        return None
    name, last = subject(finding), found[0][-1]
    line = split_lines(text)[last.lineno - 1]
    margin = line[: len(line) - len(line.lstrip())]
    is_alone = line.lstrip()[:1] in ("'", '"')
    if is_alone and "#" in line:  # the comment speaks of the last name, and would stand behind the new one
        return None
    place = at(text, last.end_lineno or 0, last.end_col_offset or 0)
    separator = f",\n{margin}" if is_alone else ", "
    edit = Edit(*place, *place, f'{separator}"{name}"')
    return Fix(f"Add `{name}` to `__all__`", (edit,))


UNKNOWN_IN_ALL = Rule(
    "MC310", "unknown-in-all", "`__all__` lists a name that the generated file does not define", unsafe_fix=True
)


def check_unknown_in_all(facts: Facts) -> Iterator[Finding]:
    """Find names in `__all__` that no generated file defines, nor imports because it uses them."""
    for name in facts.exported:
        is_used = name in facts.imported and any(name in one.uses for one in facts.generated.values())
        if name not in facts.generated and not is_used:
            yield UNKNOWN_IN_ALL.finding(
                facts.at(name, facts.definitions["__all__"].line),
                f"`__all__` lists `{name}`, which no generated file defines",
                help=did_you_mean(name, facts.generated) + "Correct the name, or take it out of `__all__`.",
            )


def fix_unknown_in_all(text: str, finding: Finding) -> Fix | None:
    """Take the name out of `__all__`, unless it is only misspelt."""
    found = exports(text)
    if found is None or finding.help.startswith("Did you mean"):
        return None
    names = found[0]
    name = finding.message.split("`")[3]
    places = [number for number, one in enumerate(names) if one.value == name]
    if len(places) != 1 or len(names) == 1:
        return None
    (place,) = places
    top = names[place - 1].lineno if place else found[1].lineno
    bottom = names[min(place + 1, len(names) - 1)].lineno
    if top < bottom and any("#" in line for line in split_lines(text)[top - 1 : bottom]):
        return None  # of which name a comment speaks is not known
    if place + 1 < len(names):  # up to the next name, else from the name before
        start, end = at(text, names[place].lineno, names[place].col_offset), names[place + 1]
        edit = Edit(*start, *at(text, end.lineno, end.col_offset), "")
    else:
        before, last = names[place - 1], names[place]
        start = at(text, before.end_lineno or 0, before.end_col_offset or 0)
        edit = Edit(*start, *at(text, last.end_lineno or 0, last.end_col_offset or 0), "")
    return Fix(f"Take `{name}` out of `__all__`", (edit,))


UNKNOWN_CLASS_LISTED = Rule(
    "MC332", "unknown-class-listed", "a list of classes names a class that the model does not have"
)


def check_unknown_class_listed(facts: Facts) -> Iterator[Finding]:
    """Find entries, in lists that the modular file writes, that are named as classes of the model and are none."""
    for one in facts.classes.values():
        for attribute in (name for name in facts.class_lists if name in one.text):
            for node, entry in _entries(one.members.node, attribute):
                if entry.startswith(facts.cased) and entry not in facts.generated:
                    yield UNKNOWN_CLASS_LISTED.finding(
                        facts.at_node(one, node),
                        f"`{entry}` in `{attribute}` is no class of the generated files",
                        help=did_you_mean(entry, facts.generated) + "Name a class of the model, or drop the entry.",
                    )


def _entries(node: ast.ClassDef, attribute: str) -> Iterator[tuple[ast.Constant, str]]:
    """The texts in the list or set that a class assigns to an attribute."""
    for statement in node.body:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(getattr(target, "id", "") == attribute for target in targets):
            for entry in getattr(getattr(statement, "value", None), "elts", ()):
                if isinstance(entry, ast.Constant) and isinstance(entry.value, str):
                    yield entry, entry.value
