"""MC505: a name that the other generated file lacks."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, modeling_old


RULE = Rule(
    code="MC505",
    name="missing-in-sibling",
    severity=Severity.ERROR,
    summary="a generated file imports a name that its sibling does not have",
    explanation="""\
A generated file imports a name from another generated file of its model, which does not have it, so the import
fails. Most often the name stands in an annotation of an inherited method: `OldConfig | OldTextConfig` becomes
`NewConfig | NewTextConfig`, but the modular file defines `NewConfig` alone.

Define the name in the modular file, or override the method with an annotation of names that the model has.
""",
    examples=examples(
        modeling_old("""\
from torch import nn


from .configuration_old import OldConfig, OldTextConfig


class OldMLP(nn.Module):
    def __init__(self, config: OldConfig | OldTextConfig):
        super().__init__()

    def forward(self, hidden_states):
        return hidden_states
"""),
        bad="""\
from ..old.modeling_old import OldMLP


class NewConfig:
    pass


class NewMLP(OldMLP):
    pass


__all__ = ["NewConfig", "NewMLP"]
""",
        good="""\
from ..old.modeling_old import OldMLP


class NewConfig:
    pass


class NewMLP(OldMLP):
    def __init__(self, config: NewConfig):
        super().__init__(config)


__all__ = ["NewConfig", "NewMLP"]
""",
    ),
)


def diagnose(
    location: Location, name: str, module: str, place: str, *, parent: tuple[str, str] | None = None
) -> Finding:
    """`module` is the sibling, `.configuration_new`; `place` names the definition and line of the generated file.

    `parent` is the class that `name` was before renaming, with its module, where a neighbour imports it.
    """
    define = f"Define `{name}` in the modular file"
    if parent:
        define += f" (`from {parent[0]} import {parent[1]}`, `class {name}({parent[1]})`)"
    return Finding(
        RULE,
        location,
        f"{place} imports `{name}` from `{module}`, which does not have it",
        help=f"{define}, or override the method whose annotation names it.",
    )


def circular(location: Location, name: str, file: str) -> Finding:
    """`file` needs the class `name`, and the file with the class needs classes of `file`: neither can come first."""
    return Finding(
        RULE,
        location,
        f"{file} would import `{name}` from a file that imports from {file}: the import fails",
        help=f"Take `{name}` out of the classes of {file}: only one of the two files can import from the other.",
    )
