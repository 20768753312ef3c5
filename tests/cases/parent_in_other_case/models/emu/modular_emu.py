from torch import nn

from ..paligemma.modeling_paligemma import PaligemmaMLP as Base
from ..paligemma.modeling_paligemma import PaliGemmaModel, PaligemmaModelOutputWithPast


class EmuModelOutputWithPast(PaligemmaModelOutputWithPast):
    pass


class EmuMLP(Base):
    def forward(self, hidden_states):
        hidden_states = 2 * hidden_states
        return super().forward(hidden_states)


class EmuModel(PaliGemmaModel):
    pass


class EmuTower(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = Base(config)  # modular: ignore[MC302]


__all__ = ["EmuModel", "EmuTower"]
