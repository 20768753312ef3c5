"""Code that no generated file has, or another than is meant."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.model.module import Role, Statement
from modular_converter.model.nodes import decorators_of, parse, walk


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
            if user is None or _is_used(facts, name) or heir.members.is_empty:
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


def _is_used(facts: Facts, name: str) -> bool:
    """Whether another definition uses a class: then the author wants both, the changed class and the copy."""
    return any(name in one.uses for one in facts.generated.values() if one.name != name)


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
    "MC308", "unused-definition", "a function or assignment is used by no class, so it is not generated"
)


def check_unused_definition(facts: Facts) -> Iterator[Finding]:
    """Find functions and assignments that no generated file holds."""
    bases = (parent.written for _, parent in facts.heirs)
    known = {*bases, *facts.customary_names, "__all__", "__getattr__"}
    for name, definition in facts.definitions.items():
        if definition.role is Role.CLASS or name in known or name in facts.generated:
            continue
        message = f"no class uses `{name}`, so it is in no generated file"
        cure = f"Use `{name}` in a class, or remove it."
        if registry := _registry(definition, facts):
            message += f": what its decorator `{registry}` enters in another model's table is lost"
            cure = f"Write the table into the modular file with all that it holds, or use `{name}` in a class by its name."
        yield UNUSED_DEFINITION.finding(facts.at(name, definition.line), message, help=cure)


def _registry(definition: Statement, facts: Facts) -> str:
    """The neighbour's name by which a decorator may enter a function somewhere: `ACT` of `@ACT.register("x")`."""
    decorators = decorators_of(parse(definition.text).body[0]) if definition.text.startswith("@") else ()
    sources = {one.dotted for one in facts.neighbours}
    names = (one.partition(".")[0] for one in decorators)
    return next((one for one in names if one in facts.imported and facts.imported[one].module in sources), "")
