"""The files of the rules' examples: an old model with a plan, and a new model that inherits from it."""

from __future__ import annotations

from collections.abc import Mapping


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

_MODULAR = """\
from torch import nn

from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldMLP, OldModel


class NewConfig(OldConfig):
    {plan}


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        {layers}

    def forward(self, hidden_states):
        return {result}


class NewModel(OldModel):
    pass


__all__ = ["NewConfig", "NewMLP", "NewModel"]
"""


def example(layers: str, result: str, plan: Mapping[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    """The files of an example: (path, text).

    Args:
        layers: the statements that change the old layers to the new layers.
        result: the expression that the new forward returns.
        plan: the plan in the new configuration; None to inherit the old plan.
    """
    entries = "".join(f'        "{pattern}": "{style}",\n' for pattern, style in (plan or {}).items())
    written = "pass" if plan is None else f"base_model_tp_plan = {{\n{entries}    }}"
    return (*NEIGHBOURS, ("models/new/modular_new.py", _MODULAR.format(plan=written, layers=layers, result=result)))
