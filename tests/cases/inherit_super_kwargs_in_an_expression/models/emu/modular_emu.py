from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def f(self, b=4, d=5, **super_kwargs):
        found = super().f(b=b, **super_kwargs)
        return found, d

    def g(self, **super_kwargs):
        return 2 * super().g(1, **super_kwargs)


__all__ = ["EmuMLP"]
