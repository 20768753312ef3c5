"""MC506: a top-level statement that would reach no generated file."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples, new_mlp


RULE = Rule(
    code="MC506",
    name="lost-statement",
    severity=Severity.ERROR,
    summary="a statement at the top level would reach no generated file",
    explanation="""\
A generated file is put together from imports and definitions: functions, classes, assignments, and blocks (`if`,
`for`, `with`) that bind names, each with the changes that follow it (`TABLE["x"] = 1`, `helper.calls = 0`, a loop
that fills `TABLE`). Any other statement has no name by which a generated file could include it: a class under `if`, a
call, a block that no class uses. A change of a neighbour's definition (`TABLE["x"] = 1` below an import of `TABLE`)
has no place either, nor has a change of an imported object that no class uses. A function that only a decorator
registers is lost, too, and so is a change below a class that is merged with another one: of an heir, or of its
parent.

Write each definition at the top level, and what belongs to a class inside of it.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    pass


NewMLP.is_fast = True


__all__ = ["NewMLP"]
""",
        good=new_mlp("""\
    is_fast = True
"""),
    ),
)


def diagnose(location: Location, statement: str, changed_class: str = "") -> Finding:
    """`statement` is its first line; `changed_class` the class that it changes, if it does."""
    if changed_class:
        cure = f"Write what it sets into the body of `{changed_class}`."
    else:
        cure = "Write definitions at the top level; move other code into a function."
    return Finding(RULE, location, f"`{statement}` would reach no generated file", help=cure)


def of_neighbours(location: Location, statement: str, changed: str, *, is_class: bool) -> Finding:
    """`statement` is the first line of one that changes a definition `changed` of a neighbour."""
    if is_class:
        cure = f"Write what it sets into the body of the class that inherits from `{changed}`."
    else:
        cure = f"Write `{changed}` with the change into the modular file under another name, and override the code that has to use it."
    message = f"`{statement}` changes what a neighbour defines, and would reach no generated file"
    return Finding(RULE, location, message, help=cure)


def in_neighbour(location: Location, changed: str, place: str, *, is_class: bool) -> Finding:
    """`place` is the file and line of the neighbour's statement that may change its definition `changed`."""
    if is_class:
        cure = f"Write what is set there into the body of the class that inherits from `{changed}`."
    else:
        cure = f"Write `{changed}` out in the modular file with all that it holds, or move the change into its definition in the neighbour."
    message = f"the change of `{changed}` below its definition, at {place}, would reach no generated file"
    return Finding(RULE, location, message, help=cure)


def registered(location: Location, name: str) -> Finding:
    """A decorator enters the function or class `name` somewhere, but nothing uses it by this name."""
    return Finding(
        RULE,
        location,
        f"`{name}` is registered by its decorator, and would reach no generated file",
        help="Give it a name of its own, and register it in a statement: below `show`, `show.register(int, show_int)`, "
        "with `show_int` above `show`.",
    )


def computed_names(location: Location) -> Finding:
    """An `__all__` with names that are not written there as strings."""
    message = "`__all__` holds names that are not written as strings, which would reach no generated file"
    return Finding(RULE, location, message, help="Write the names out: a list of strings in quotes.")
