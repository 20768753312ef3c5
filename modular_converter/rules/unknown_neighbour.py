"""MC104: an import from a model file that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC104",
    name="unknown-neighbour",
    severity=Severity.ERROR,
    summary="the imported model file does not exist",
    explanation="""\
The modular file imports from a model file that is neither on disk nor generated in this run, so the code that its
classes inherit cannot be read.

Neighbours are found from the place of the modular file and the root of the package; nothing is imported. Check the
spelling of the model and of the file (`..llama.modeling_llama`). If the neighbour is itself generated, convert its
modular file in the same run. If it belongs to another package, install that package in the environment that runs this
tool: with pip, and in a hook of pre-commit by `additional_dependencies: ["transformers==5.24.0"]`.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..odl.modeling_odl import OldMLP


class NewMLP(OldMLP):
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def not_installed(location: Location, module: str, package: str) -> Finding:
    """`module` as written in the import; `package` is neither installed here nor found beside the modular file."""
    return Finding(
        RULE,
        location,
        f"`{module}` does not exist: there is no package `{package}` in this environment",
        help=f"Run `pip install {package}`. In `.pre-commit-config.yaml`, give the hook "
        f'`additional_dependencies: ["{package}"]` with the version that you use.',
    )


def diagnose(location: Location, module: str, path: str, *, candidates: Iterable[str] = ()) -> Finding:
    """`module` as written in the import, `path` where it was looked for, `candidates` modules that do exist."""
    return Finding(
        RULE,
        location,
        f"`{module}` does not exist: there is no {path}",
        help=did_you_mean(module, candidates)
        + "Correct the import, convert the neighbour's own modular file in the same run, or give `--root`.",
    )
