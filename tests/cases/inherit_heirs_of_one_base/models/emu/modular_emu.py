from ..llama.modeling_llama import LlamaAttention, LlamaSdpa


class EmuSdpa(LlamaSdpa):
    pass


class EmuFlash(LlamaAttention):
    def scores(self, x):
        return x + 2


__all__ = ["EmuSdpa", "EmuFlash"]
