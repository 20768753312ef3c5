import builtins

from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def f(self, x):
        again = lambda one, x: super(type(one), one).f(x)
        return super(type(self), self).f(x) + super(self.__class__, self).f(x) + again(self, x)

    @classmethod
    def make(cls, size):
        return super(cls, cls).make(size) + builtins.super(EmuMLP, cls).make(size)


class EmuGate(LlamaMLP):
    def f(self, x):
        kind = EmuGate
        return 2 * super(kind, self).f(x)


__all__ = ["EmuMLP", "EmuGate"]
