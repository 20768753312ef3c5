from ..llama.configuration_llama import LlamaConfig


class EmuLogged:
    def to_dict(self):
        return {**super().to_dict(), "logged": True}


class EmuConfig(EmuLogged, LlamaConfig):
    model_type = "emu"

    def __init__(self, depth=2, **kwargs):
        self.depth = depth
        super().__init__(**kwargs)


__all__ = ["EmuConfig"]
