"""MC311: a parallel plan for a layer that is gone."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity, did_you_mean


NEIGHBOURS = (
    (
        "models/old/configuration_old.py",
        """\
class OldConfig:
    base_model_tp_plan = {
        "mlp.up_proj": "colwise",
        "mlp.down_proj": "rowwise",
    }
""",
    ),
    (
        "models/old/modeling_old.py",
        """\
from torch import nn


class OldMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(8, 16)
        self.down_proj = nn.Linear(16, 8)

    def forward(self, hidden_states):
        return self.down_proj(self.up_proj(hidden_states))


class OldModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = OldMLP(config)

    def forward(self, hidden_states):
        return self.mlp(hidden_states)
""",
    ),
)

RULE = Rule(
    code="MC311",
    name="plan-names-missing-layer",
    severity=Severity.WARNING,
    summary="an entry of a parallel plan names a layer that the generated model does not have",
    explanation="""\
The configuration, often inherited whole, says how each layer is split over devices. This entry names a layer that the
generated model no longer has. Such an entry matches nothing and is passed over at run time, so the layer that took
its place is not split at all, or is split the wrong way.

Override the plan in the configuration of the modular file, with the names that the generated model has.
""",
    bad=(
        *NEIGHBOURS,
        (
            "models/new/modular_new.py",
            """\
from torch import nn

from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldMLP, OldModel


class NewConfig(OldConfig):
    pass


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        del self.up_proj
        self.gate_up_proj = nn.Linear(8, 16)

    def forward(self, hidden_states):
        return self.down_proj(self.gate_up_proj(hidden_states))


class NewModel(OldModel):
    pass


__all__ = ["NewConfig", "NewMLP", "NewModel"]
""",
        ),
    ),
    good=(
        *NEIGHBOURS,
        (
            "models/new/modular_new.py",
            """\
from torch import nn

from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldMLP, OldModel


class NewConfig(OldConfig):
    base_model_tp_plan = {
        "mlp.gate_up_proj": "colwise",
        "mlp.down_proj": "rowwise",
    }


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        del self.up_proj
        self.gate_up_proj = nn.Linear(8, 16)

    def forward(self, hidden_states):
        return self.down_proj(self.gate_up_proj(hidden_states))


class NewModel(OldModel):
    pass


__all__ = ["NewConfig", "NewMLP", "NewModel"]
""",
        ),
    ),
)


def diagnose(location: Location, entry: str, plan: str, *, candidates: Iterable[str] = ()) -> Diagnostic:
    """`entry` is the pattern, `plan` the attribute that holds it (`base_model_tp_plan`)."""
    return Diagnostic(
        RULE,
        location,
        f"`{plan}` has an entry `{entry}`, but the generated model has no such layer",
        help=did_you_mean(entry, candidates) + f"Override `{plan}` in the modular file with the layers that exist.",
    )
