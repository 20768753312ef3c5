from ..llama.modeling_llama import LlamaMLP


class EmuCounted:
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.count = 0

    def forward(self, hidden_states):
        self.count += 1
        return 2 * super().forward(hidden_states)


class EmuMLP(EmuCounted, LlamaMLP):
    pass


class EmuGatedMLP(EmuCounted, LlamaMLP):
    """Calls the method of the base in front."""

    def forward(self, hidden_states):
        return self.size * super().forward(hidden_states)


class EmuPlainMLP(EmuCounted, LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.plain = isinstance(config, LlamaMLP)
