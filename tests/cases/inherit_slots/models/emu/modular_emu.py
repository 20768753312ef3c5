from ..llama.modeling_llama import LlamaKey, LlamaPair, LlamaState


class EmuKey(LlamaKey):
    __slots__ = ("b",)

    def __init__(self, a):
        super().__init__(a)
        self.b = 2 * a


class EmuPair(LlamaPair):
    def reset(self):
        self.third = None


class EmuState(LlamaState):
    __slots__ = ("b",)

    def reset(self):
        self.c = 2


__all__ = ["EmuKey", "EmuPair", "EmuState"]
