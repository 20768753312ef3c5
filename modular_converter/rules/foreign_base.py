"""MC504: a base that was not flattened."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC504",
    name="foreign-base",
    severity=Severity.ERROR,
    summary="a generated class still inherits from a class of another model",
    explanation="""\
A generated file stands alone: a class of another model is flattened into it. This base was left as it is. The
converter follows a parent only if its name is imported from the module that defines it. It does not follow an
attribute of an imported module, a base with a subscript, an import under `if` or `try`, or an import from the other
model's package or modular file.

Import the class by its name and inherit from it: `from ..old.modeling_old import OldMLP`.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old import modeling_old


class NewMLP(modeling_old.OldMLP):
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, name: str, base: str, *, module: str = "") -> Finding:
    """`base` is the base of the generated class `name`, as it stands there; `module` defines it, where that is known."""
    leaf = base.rpartition(".")[2]
    source = (
        f"`from {module} import {leaf}`"
        if module
        else (
            f"import `{leaf}` by its name from the file that defines it: not from a package or a modular file, and not under "
            "`if` or `try`"
        )
    )
    return Finding(
        RULE,
        location,
        f"the generated `{name}` would still inherit from `{base}` of another model",
        help=f"Write {source}." if module else f"Write `class {name}({leaf})`, and {source}.",
    )
