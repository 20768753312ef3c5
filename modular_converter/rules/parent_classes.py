"""The parent that a class names: which it is, and what its choice means."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, did_you_mean
from modular_converter.model.nodes import parse, walk
from modular_converter.rules._edits import at, subject


if TYPE_CHECKING:
    from modular_converter.facts import Facts


UNKNOWN_PARENT = Rule(
    code="MC105",
    name="unknown-parent",
    severity=Severity.ERROR,
    summary="the neighbour does not define the imported name",
    explanation="""\
The model file exists, but the class or function that is imported from it does not. Perhaps it was renamed, or lives
in another file of that model, such as `configuration_old` instead of `modeling_old`.

Import the name as the neighbour's source spells it. A name that the neighbour itself imports must be
imported from the module that defines it. A name with only the model's name in another case is MC329, a warning.
""",
)


def unknown_parent(location: Location, name: str, neighbour: str, *, candidates: Iterable[str] = ()) -> Finding:
    """`neighbour` is the path of the file that lacks `name`, `candidates` are the names that it defines."""
    return Finding(
        UNKNOWN_PARENT,
        location,
        f"`{name}` is not defined in {neighbour}",
        help=did_you_mean(name, candidates) + "Import a name from the file that defines it.",
    )


TWO_PARENTS = Rule(
    code="MC108",
    name="two-parents",
    severity=Severity.ERROR,
    summary="a class inherits from two classes of neighbours",
    explanation="""\
A generated class is the body of one parent with the child's changes. Two neighbour parents give two bodies, and a
reader could not tell which of two methods of one name counts.

Inherit from the class that gives most, and write the methods that you want from the other into the child, or a call
such as `super().forward(…)` beside your own lines. Ordinary bases that come from no neighbour (`nn.Module`, mixins of
the library) may be added freely.
""",
)


def two_parents(location: Location, name: str, parents: tuple[str, ...]) -> Finding:
    """`parents` are the bases of class `name` that come from neighbours."""
    listed = ", ".join(f"`{parent}`" for parent in parents)
    return Finding(
        TWO_PARENTS,
        location,
        f"class `{name}` inherits from more than one neighbour class: {listed}",
        help=f"Keep one of them as the parent and write what you need of the others into `{name}`.",
    )


BASE_NOT_A_NAME = Rule(
    code="MC109",
    name="base-not-a-name",
    severity=Severity.ERROR,
    summary="a base of a class is not a plain or dotted name",
    explanation="""\
Bases decide which source a class is built from, so each must be readable without running code: a name (`OldMLP`)
or a dotted name (`nn.Module`). A call, a subscript or a condition has a value only at run time.

Give the class by its name. If the expression chooses between classes, write one class for each.
""",
)


def base_not_a_name(location: Location, name: str, base: str) -> Finding:
    """`base` is the expression as written."""
    return Finding(
        BASE_NOT_A_NAME,
        location,
        f"the base `{base}` of class `{name}` is not a name",
        help="Write the base as a name or a dotted name, such as `OldMLP` or `nn.Module`.",
    )


DEEP_INHERITANCE = Rule(
    code="MC312",
    name="deep-inheritance",
    severity=Severity.WARNING,
    summary="the parent itself inherits from another model's class",
    explanation="""\
The generated class has the parent's body and the parent's bases. One of these bases is a class of a third model, so
the generated file imports from that model, and a reader does not see all code of the class in one file.

Inherit from the class that holds the code (`FirstMLP`), or first rewrite the parent's file so that it does not import
from another model.
""",
)


def deep_inheritance(location: Location, name: str, parent: str, grandparent: str, module: str) -> Finding:
    """Class `name` inherits from `parent`, which inherits from `grandparent` of the model file `module`."""
    return Finding(
        DEEP_INHERITANCE,
        location,
        f"the parent `{parent}` of `{name}` itself inherits from `{grandparent}` of {module}",
        help=f"Inherit from `{grandparent}` and add what `{parent}` changes, so that the generated file stands alone.",
    )


def check_deep_inheritance(facts: Facts) -> Iterator[Finding]:
    """Find classes whose parents import a base from a third model."""
    for heir, parent in facts.heirs:
        for base in parent.grandparents:
            place = facts.at(parent.written, heir.line)
            yield deep_inheritance(place, heir.name, parent.original, base.name, base.module)


INHERITABLE_DEFINITION = Rule(
    code="MC325",
    name="inheritable-definition",
    severity=Severity.WARNING,
    summary="a definition is written out though a neighbour has it",
    explanation="""\
Another model has a class or function with the same text, but for the names of the models. A correction of
one of the two has to be repeated in the other, and a reader cannot see that they are the same.

Inherit the class (`class NewMLP(OldMLP): pass`) or import the function. Where several models have the text, the oldest
is named. What the definition uses must be the same, too: `modular-convert modularize MODEL --diff` proves the change.
""",
    by_default=False,
)


def inheritable_definition(location: Location, name: str, original: str, dotted: str, *, is_class: bool) -> Finding:
    """`name` is written out, and the neighbour `dotted` defines the same under the name `original`."""
    use = f" and `class {name}({original}): pass`" if is_class else ""
    return Finding(
        INHERITABLE_DEFINITION,
        location,
        f"`{name}` is written out, and `{original}` of {dotted} is the same",
        help=f"Write `from {dotted} import {original}`{use} in place of the definition.",
    )


PARENT_IN_OTHER_CASE = Rule(
    code="MC329",
    name="parent-in-other-case",
    severity=Severity.WARNING,
    summary="the name of a parent has the name of its model in another case",
    explanation="""\
The neighbour does not define the base of this class, but exactly one class whose name differs in the case of the
model's name alone: `PaligemmaProcessor` instead of `PaliGemmaProcessor`. The file is converted as if it wrote it
everywhere, so what it generates is right. The modular file is not: Python raises `ImportError` where it is imported.

Write the name as the neighbour does. Any other name that the neighbour does not define is MC105.
""",
)


def parent_in_other_case(location: Location, name: str, meant: str, neighbour: str) -> Finding:
    """`neighbour` is the module that lacks `name` and defines `meant`."""
    return Finding(
        PARENT_IN_OTHER_CASE,
        location,
        f"`{name}` is read as `{meant}`: {neighbour} does not define it, and Python raises ImportError",
        help=f"Write `{meant}`, in the import too.",
    )


def fix_parent_in_other_case(text: str, finding: Finding) -> Fix:
    """Write the name as the neighbour does, in the import and wherever it is used."""
    name, meant = subject(finding), finding.message.split("`")[3]
    nodes = [one for one in walk(parse(text)) if isinstance(one, (ast.alias, ast.Name)) and name == _name(one)]
    places = [at(text, one.lineno, one.col_offset) for one in nodes]
    edits = (Edit(line, column, line, column + len(name), meant) for line, column in places)
    return Fix(f"Write `{meant}`", tuple(edits))


def _name(node: ast.alias | ast.Name) -> str:
    return node.name if isinstance(node, ast.alias) else node.id
