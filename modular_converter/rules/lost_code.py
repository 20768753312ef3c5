"""Code that no generated file has, or another than is meant, and names in `__all__` that generated files lack."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, did_you_mean, split_lines
from modular_converter.model.lexer import classes_in_strings
from modular_converter.model.module import Role
from modular_converter.model.nodes import decorators_of, parse, walk
from modular_converter.rules._words import at, exports, subject


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, GeneratedDefinition, Parent


REPLACED_DEPENDENCY = Rule(
    "MC201",
    "replaced-dependency",
    "a class derived from a dependency is not used by the model that inherits the dependency",
)


def check_replaced_dependency(facts: Facts) -> Iterator[Finding]:
    """Find classes whose parent is also copied unchanged, and used by another generated class."""
    for definitions in facts.files.values():
        for name in definitions:
            heir = facts.classes.get(name)
            if heir is None or heir.parent is None or heir.name == heir.parent.name:
                continue
            user = _user_of_copy(facts, definitions, heir, heir.parent)
            # Where another definition uses the class, the author wants both, the changed class and the copy.
            is_used = any(name in one.uses for one in facts.generated.values() if one.name != name)
            if user is None or is_used or heir.members.is_empty:
                continue
            copy = heir.parent.name
            found = REPLACED_DEPENDENCY.finding(
                facts.at_class(heir),
                f"`{name}` changes `{copy}`, but the generated `{user}` goes on using an untouched `{copy}`",
                help=f"Assign `{name}` in `{user}.__init__`, or name it `{copy}`, so that it takes the place of the copy.",
            )
            severity = Severity.WARNING if name in facts.exported else facts.replaced_dependency
            yield found if severity is found.severity else found.with_severity(severity)


def _user_of_copy(
    facts: Facts, definitions: Mapping[str, GeneratedDefinition], heir: ClassFacts, parent: Parent
) -> str | None:
    """The first other class of the modular file whose generated form uses a copy of the parent, and not as its base: two heirs
    of one base stand beside each other.
    """
    copy = definitions.get(parent.name)
    if copy is None or copy.copied_from != parent.neighbour.path:
        return None
    others = (other.name for other, _ in facts.heirs if other.name != heir.name)
    return next((name for name in others if name in definitions and _builds(definitions[name], copy.name)), None)


def _builds(definition: GeneratedDefinition, name: str) -> bool:
    """Whether a class uses another one in its body or by its decorators."""
    node = definition.members.node if name in definition.uses else None
    parts = (*node.body, *node.decorator_list) if node is not None else ()
    return any(isinstance(one, ast.Name) and one.id == name for one in walk(*parts))


LOST_STATEMENT = Rule("MC506", "lost-statement", "a statement at the top level would reach no generated file")


def lost_statement(location: Location, statement: str) -> Finding:
    """`statement` is its first line."""
    cure = "Write definitions at the top level; move other code into a function."
    return LOST_STATEMENT.finding(location, f"`{statement}` would reach no generated file", help=cure)


def of_neighbours(location: Location, statement: str, changed: str, *, is_class: bool) -> Finding:
    """`statement` is the first line of one that changes a definition `changed` of a neighbour."""
    if is_class:
        cure = f"Write what it sets into the body of the class that inherits from `{changed}`."
    else:
        cure = f"Write `{changed}` with the change into the modular file under another name, and override the code that has to use it."
    message = f"`{statement}` changes what a neighbour defines, and would reach no generated file"
    return LOST_STATEMENT.finding(location, message, help=cure)


def in_neighbour(
    location: Location, changed: str, place: str, *, is_class: bool, is_bound_anew: bool = False
) -> Finding:
    """`place` is the file and line of the neighbour's statement that may change its definition `changed`, or give the name of
    the class to something else.
    """
    if is_bound_anew:
        cure = (
            f"Write the class out without `{changed}`, or leave its body empty: then it is what `{changed}` is there."
        )
    elif is_class:
        cure = f"Write what is set there into the body of the class that inherits from `{changed}`."
    else:
        cure = f"Write `{changed}` out in the modular file with all that it holds, or move the change into its definition in the neighbour."
    message = f"the change of `{changed}` below its definition, at {place}, would reach no generated file"
    return LOST_STATEMENT.finding(location, message, help=cure)


def registered(location: Location, name: str) -> Finding:
    """A decorator enters the function or class `name` somewhere, and the name is defined again below."""
    return LOST_STATEMENT.finding(
        location,
        f"`{name}` is registered by its decorator, but defined again below: it would reach no generated file",
        help="Give each of them a name of its own.",
    )


def computed_names(location: Location) -> Finding:
    """An `__all__` with names that are not written there as strings."""
    message = "`__all__` holds names that are not written as strings, which would reach no generated file"
    return LOST_STATEMENT.finding(location, message, help="Write the names out: a list of strings in quotes.")


UNUSED_DEFINITION = Rule(
    "MC308", "unused-definition", "a function or assignment is used by no class nor exported, so it is not generated"
)


def check_unused_definition(facts: Facts) -> Iterator[Finding]:
    """Find functions and assignments that no generated file holds."""
    bases = (parent.written for _, parent in facts.heirs)
    known = {*bases, *facts.customary_names, "__all__"}
    for name, definition in facts.definitions.items():
        is_placed = name == "__getattr__" and classes_in_strings(definition.text)
        if definition.role is Role.CLASS or name in known or name in facts.generated or is_placed:
            continue
        message = f"no class uses `{name}`, so it is in no generated file"
        cure = f"Use `{name}` in a class, name it in `__all__`, or remove it."
        # A decorator may enter the function in a neighbour's object: `ACT` of `@ACT.register("x")`.
        decorators = decorators_of(parse(definition.text).body[0]) if definition.text.startswith("@") else ()
        sources = {one.dotted for one in facts.neighbours}
        names = (one.partition(".")[0] for one in decorators)
        registries = [one for one in names if one in facts.imported and facts.imported[one].module in sources]
        if registries:
            message += f": what its decorator `{registries[0]}` enters in another model's table is lost"
            cure = f"Write the table into the modular file with all that it holds, or use `{name}` in a class by its name."
        yield UNUSED_DEFINITION.finding(facts.at(name, definition.line), message, help=cure)


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
