"""MC340: a base called in a class method, whose class changes with the call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.nodes import dotted, walk
from modular_converter.model.overriding import is_class_method
from modular_converter.rules._examples import OLD_MLP, examples


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses

MODULAR = """\
from torch import nn

from ..old.modeling_old import OldMLP


class NewMLP(OldMLP, nn.Module):
    @classmethod
    def load(cls, path):
        {0}


__all__ = ["NewMLP"]
"""

RULE = Rule(
    code="MC340",
    name="base-in-class-method",
    severity=Severity.WARNING,
    summary="a base called in a class method would get another class",
    explanation="""\
`Base.load(path)` in a class method `load` becomes `super().load(path)`, as in the published files. With the base's
name, its method gets the base as `cls`; through `super()` it gets the class on which it was called.

Write the call in another method, or silence the finding if the class is meant.
""",
    examples=examples(
        OLD_MLP,
        bad=MODULAR.format("return nn.Module.load(path)"),
        good=MODULAR.format("return cls().read(path)"),
    ),
)


def diagnose(location: Location, method: str, base: str) -> Finding:
    """The class method `method` calls the one of `base`."""
    return Finding(
        RULE,
        location,
        f"`{base}.{method}(…)` becomes `super().{method}(…)`, whose `cls` is not `{base}` but the class that is called",
        help="Move the call into a method of another name if it shall make a `"
        + base
        + "`; else silence this finding.",
    )


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find calls on bases of the generated class in class methods of the same name."""
    reached = {
        *classes.bases,
        *([classes.model_base] if any(classes.model_base in one for one in classes.bases) else []),
    }
    methods = (one.function for one in classes.child.members if one.is_function)
    for method in filter(is_class_method, methods):
        for node in walk(*method.body):
            function = node.func if isinstance(node, ast.Call) else None
            if isinstance(function, ast.Attribute) and function.attr == method.name:
                base = dotted(function.value)
                if base in reached:
                    yield finding_at(node, diagnose, method.name, base)
