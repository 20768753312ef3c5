"""MC326: an import of a module beside the model that does not exist, written or taken over from a neighbour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC326",
    name="missing-module",
    severity=Severity.WARNING,
    summary="generated code imports from a module beside it that does not exist",
    explanation="""\
Generated files have the imports of the modular file, and those of the neighbours that inherited code needs. If one of
them names a module in the folder of this model or of another model, and the module neither exists nor is generated,
the generated file cannot be imported.

A neighbour's relative imports lead to the files of the new model. Where only the neighbour's folder has such a file,
import the name in the modular file: `from ..llama.helpers import scale` takes the place of the neighbour's import.

Otherwise correct the name, write the module, or define the class in the modular file: a class `NewConfig` gives
`configuration_new.py`. Imports under `try`, or under a condition at the top level, are not checked, nor are modules
above the folder of models, which a part of a library may lack.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP
from .configuration_new import NewConfig


class NewMLP(OldMLP):
    config_class = NewConfig


__all__ = ["NewMLP"]
""",
        good="""\
from ..old.modeling_old import OldMLP


class NewConfig:
    pass


class NewMLP(OldMLP):
    config_class = NewConfig


__all__ = ["NewConfig", "NewMLP"]
""",
    ),
)


def diagnose(location: Location, module: str, path: str, comes_from: str = "", instead: str = "") -> Finding:
    """`module` is the name in the import; `path` is the file that was searched, relative to the modular file.

    Args:
        comes_from: the place of the import in a neighbour whose code has it.
        instead: the import of the modular file that would replace it.
    """
    whose = f", imported by code that comes along from {comes_from}," if comes_from else ""
    help = "Correct the import, write the module, or define in the modular file what you import from it."
    if comes_from:
        help = "Write the module, or override the function with an import of your own."
    if instead:
        help = f"Write the module, or import in the modular file what lies beside the parent: `{instead}`."
    return Finding(
        RULE,
        location,
        f"`{module}`{whose} does not exist: there is no {path}, and none is generated",
        help=help,
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find imports of modules that do not exist."""
    for one in facts.missing_modules:
        yield diagnose(Location(facts.path, one.line), one.module, one.path, one.comes_from, one.instead)
