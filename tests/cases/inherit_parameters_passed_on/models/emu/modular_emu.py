from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__(self, config: int, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        self.extra = config + 1

    def f(self, x, *args, **kwargs):
        x = x + 1
        return super().f(x, *args, **kwargs)


    def g(self, x, scale=1, **kwargs):
        x = x * scale
        return super().g(x, **kwargs)

    def h(self, **kwargs):
        return super().h(y=2, **kwargs)

    @classmethod
    def made(cls, x, **kwargs):
        return super().made(x, **kwargs)

    def keep(self, x, **kwargs):
        super().keep(x, **kwargs)
        del self.mask
