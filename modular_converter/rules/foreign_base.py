"""MC504: a base that was not flattened."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, modular_new


RULE = Rule(
    code="MC504",
    name="foreign-base",
    severity=Severity.ERROR,
    summary="a generated class still inherits from a class of another model",
    explanation="""\
A generated file stands alone: a class of another model is flattened into it. This base was left as it is, since the
converter follows parents only by the name under which they are imported from their module: not as an attribute of an
imported module, not with a subscript, not where the import stands under `if` or `try`, and not from the package of the
other model or from its modular file, which is no part of the library.

Import the class by its name and inherit from that: `from ..old.modeling_old import OldMLP`.
""",
    bad=(
        OLD_MLP,
        modular_new("""\
from ..old import modeling_old


class NewMLP(modeling_old.OldMLP):
    pass


__all__ = ["NewMLP"]
"""),
    ),
    good=(
        OLD_MLP,
        NEW_MLP,
    ),
)


def diagnose(location: Location, name: str, base: str) -> Finding:
    """`base` is the base of the generated class `name`, as it stands there."""
    leaf = base.rpartition(".")[2]
    return Finding(
        RULE,
        location,
        f"the generated `{name}` would still inherit from `{base}` of another model",
        help=f"Import `{leaf}` by its name from the file that defines it, which is no package and no modular file, with no "
        f"`if` or `try` around the import, "
        f"and write `class {name}({leaf})`.",
    )
