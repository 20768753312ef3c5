"""MC329: a parent whose name has the name of its model in another case."""

from __future__ import annotations

import ast

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity
from modular_converter.model.nodes import parse, walk
from modular_converter.rules._edits import at, subject
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
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
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OLDMLP


class NewMLP(OLDMLP):
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, name: str, meant: str, neighbour: str) -> Finding:
    """`neighbour` is the module that lacks `name` and defines `meant`."""
    return Finding(
        RULE,
        location,
        f"`{name}` is read as `{meant}`: {neighbour} does not define it, and Python raises ImportError",
        help=f"Write `{meant}`, in the import too.",
    )


def fix(text: str, finding: Finding) -> Fix:
    """Write the name as the neighbour does, in the import and wherever it is used."""
    name, meant = subject(finding), finding.message.split("`")[3]
    nodes = [one for one in walk(parse(text)) if isinstance(one, (ast.alias, ast.Name)) and name == _name(one)]
    places = [at(text, one.lineno, one.col_offset) for one in nodes]
    edits = (Edit(line, column, line, column + len(name), meant) for line, column in places)
    return Fix(f"Write `{meant}`", tuple(edits))


def _name(node: ast.alias | ast.Name) -> str:
    return node.name if isinstance(node, ast.alias) else node.id
