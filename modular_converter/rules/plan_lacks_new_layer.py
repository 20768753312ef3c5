"""MC314: a new layer that an inherited parallel plan says nothing of."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


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
    code="MC314",
    name="plan-lacks-new-layer",
    severity=Severity.WARNING,
    summary="an inherited parallel plan has no entry for a new layer beside the layers that it splits",
    explanation="""\
The modular file adds a linear layer to a class. Another layer of this class, with the same features in and out, is
split over devices by a plan that the configuration inherits, but the plan has no entry for the new one. It then stays
whole on every device beside layers that are split: the model needs more memory than it should, and where the two
meet, the shapes do not fit.

Override the plan in the configuration of the modular file, with an entry for the new layer.
`modular-plan write` finds the plan that the model needs and puts it there.
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
        self.gate_proj = nn.Linear(8, 16)

    def forward(self, hidden_states):
        return self.down_proj(self.gate_proj(hidden_states) * self.up_proj(hidden_states))


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
        "mlp.gate_proj": "colwise",
        "mlp.up_proj": "colwise",
        "mlp.down_proj": "rowwise",
    }


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.gate_proj = nn.Linear(8, 16)

    def forward(self, hidden_states):
        return self.down_proj(self.gate_proj(hidden_states) * self.up_proj(hidden_states))


class NewModel(OldModel):
    pass


__all__ = ["NewConfig", "NewMLP", "NewModel"]
""",
        ),
    ),
)


def diagnose(location: Location, layer: str, beside: str, class_name: str) -> Diagnostic:
    """`layer` is new in `class_name`; `beside` is a layer of the same size there that the plan splits."""
    return Diagnostic(
        RULE,
        location,
        f"the inherited `base_model_tp_plan` splits `{beside}` of `{class_name}`, but has no entry for the new "
        f"`{layer}` of the same size",
        help="Override `base_model_tp_plan` in the modular file, with an entry for the layer; `modular-plan write` "
        "derives it.",
    )
