from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def g(self):
        return self.f(llama_x=3)


__all__ = ["EmuMLP"]
