"""MC326: an import of a module beside the model that does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP


if TYPE_CHECKING:
    from modular_converter.facts.conversion import Facts


RULE = Rule(
    code="MC326",
    name="missing-module",
    severity=Severity.WARNING,
    summary="the modular file imports from a module beside it that does not exist",
    explanation="""\
Generated files have the imports of the modular file. A module in the folder of the model, or in that of another model,
which neither exists nor is generated, makes their import fail.

Correct the name, write the module, or define the class in the modular file: a `NewConfig` there gives
`configuration_new.py`. An import under `try` or a condition may fail, and is not looked at. Nor are modules above the
folder of models, which a part of a library may lack.
""",
    bad=(
        OLD_MLP,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP
from .configuration_new import NewConfig


class NewMLP(OldMLP):
    config_class = NewConfig


__all__ = ["NewMLP"]
""",
        ),
    ),
    good=(
        OLD_MLP,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewConfig:
    pass


class NewMLP(OldMLP):
    config_class = NewConfig


__all__ = ["NewConfig", "NewMLP"]
""",
        ),
    ),
)


def diagnose(location: Location, module: str, path: str) -> Diagnostic:
    """`module` is written so in the import; `path` is where it was looked for, relative to the modular file."""
    return Diagnostic(
        RULE,
        location,
        f"`{module}` does not exist: there is no {path}, and none is generated",
        help="Correct the import, write the module, or define in the modular file what you import from it.",
    )


def check(facts: Facts) -> Iterator[Diagnostic]:
    """Find imports of modules that do not exist."""
    for one in facts.missing_modules:
        yield diagnose(Location(facts.path, one.line), one.module, one.path)
