from functools import partialmethod

from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    doubled = partialmethod(LlamaMLP.forward, scale=2)
    ways = {"plain": LlamaMLP.forward, **{name: way for name, way in [("same", LlamaMLP.forward)]}}
    width = LlamaMLP.width.getter(lambda self: 10 * self._width)

    def forward(self, x, scale=3):
        return [x, scale]

    def apply(self, x, way=LlamaMLP.forward):
        return way(self, x)

    def reset(self):
        self._width = 2

    reset.__doc__ = LlamaMLP.reset.__doc__
