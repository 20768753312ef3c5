from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__(self, config, **kwargs):
        depth = kwargs.pop("depth", 1)
        super().__init__(config, **kwargs)
        self.depth = depth


__all__ = ["EmuMLP"]
