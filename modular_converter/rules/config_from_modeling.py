"""MC106: a configuration class imported from a modeling file."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import configuration_old, examples, modeling_old


RULE = Rule(
    code="MC106",
    name="config-from-modeling",
    severity=Severity.ERROR,
    summary="a configuration class is imported from a modeling file",
    explanation="""\
A modeling file imports its configuration class, it does not define it. The converter reads definitions, so it would
find no source for the class here, and the class would not go to the configuration file.

Import it from the file that defines it:

    from ..old.configuration_old import OldConfig
""",
    examples=examples(
        configuration_old("""\
class OldConfig:
    hidden_size: int = 8
"""),
        modeling_old("""\
from torch import nn

from .configuration_old import OldConfig


class OldMLP(nn.Module):
    def __init__(self, config: OldConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.hidden_size)
"""),
        bad="""\
from ..old.modeling_old import OldConfig, OldMLP


class NewConfig(OldConfig):
    hidden_size: int = 16


class NewMLP(OldMLP):
    pass


__all__ = ["NewConfig", "NewMLP"]
""",
        good="""\
from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldMLP


class NewConfig(OldConfig):
    hidden_size: int = 16


class NewMLP(OldMLP):
    pass


__all__ = ["NewConfig", "NewMLP"]
""",
    ),
)


def diagnose(location: Location, name: str, module: str) -> Finding:
    """`module` is the `modeling_*` module as written in the import."""
    right = module.replace("modeling_", "configuration_")
    return Finding(
        RULE,
        location,
        f"configuration class `{name}` is imported from `{module}`",
        help=f"Write `from {right} import {name}`.",
    )
