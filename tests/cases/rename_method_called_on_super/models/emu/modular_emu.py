from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def emu_f(self):
        return super().llama_f()


__all__ = ["EmuMLP"]
