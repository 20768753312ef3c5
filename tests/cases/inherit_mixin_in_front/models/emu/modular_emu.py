from ..llama.modeling_llama import LlamaMLP


class EmuScale:
    def forward(self, hidden_states):
        return 2 * hidden_states


class EmuMLP(EmuScale, LlamaMLP):
    pass


class EmuGatedMLP(EmuScale, LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.gate = config.gate

    def forward(self, hidden_states):
        hidden_states = hidden_states * self.gate
        return super().forward(hidden_states)
