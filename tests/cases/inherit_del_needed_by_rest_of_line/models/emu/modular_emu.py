from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        del self.down
        self.width = 1


__all__ = ["EmuMLP"]
