"""MC107: an import from the root of the package."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples


RULE = Rule(
    code="MC107",
    name="import-from-package-root",
    severity=Severity.ERROR,
    summary="a name is imported from the package root instead of its defining module",
    explanation="""\
`from transformers import X` loads names through the package's lazy table. In a generated file, which is itself a part
of the package, this makes an import cycle; and the converter, which runs nothing, cannot tell from it which file
defines `X`.

Import from the module that defines the name:

    from transformers.modeling_utils import PreTrainedModel
    from transformers.models.llama.modeling_llama import LlamaMLP
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from transformers import PreTrainedModel

from ..old.modeling_old import OldMLP


class NewPreTrainedModel(PreTrainedModel):
    pass


class NewMLP(OldMLP):
    pass


__all__ = ["NewPreTrainedModel", "NewMLP"]
""",
        good="""\
from transformers.modeling_utils import PreTrainedModel

from ..old.modeling_old import OldMLP


class NewPreTrainedModel(PreTrainedModel):
    pass


class NewMLP(OldMLP):
    pass


__all__ = ["NewPreTrainedModel", "NewMLP"]
""",
    ),
)


def diagnose(location: Location, name: str, package: str, *, module: str = "") -> Finding:
    """`module` is the defining module, where it is known."""
    return Finding(
        RULE,
        location,
        f"`{name}` is imported from the root of `{package}`",
        help=f"Import it from its defining module: `from {module or f'{package}.<module>'} import {name}`.",
    )
