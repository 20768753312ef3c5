from ..llama.modeling_llama import LlamaMLP, LlamaNorm


class EmuGate(LlamaMLP):
    def own(self):
        return self.own.__qualname__

    def frame(self):
        return [super().frame()]


class EmuNorm(LlamaNorm):
    pass


__all__ = ["EmuGate", "EmuNorm"]
