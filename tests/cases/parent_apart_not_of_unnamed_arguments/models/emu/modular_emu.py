from ..llama.modeling_llama import LlamaNorm


class EmuNorm(LlamaNorm):
    def scale(self, **super_kwargs):
        return [super().scale(**super_kwargs)]


__all__ = ["EmuNorm"]
