from ..llama.modeling_llama import LlamaGate, LlamaMLP


class EmuMLP(LlamaMLP):
    def double(self):
        return 2 * self._LlamaMLP__size


class EmuTextGate(LlamaGate):
    pass


__all__ = ["EmuMLP", "EmuTextGate"]
