from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    sizes = (3,)

    def f(self, x):
        return getattr(super(), 'f')(x) + 1

    def g(self, x):
        up = super()
        y = up.g(x)

        def again(v):
            return up.f(v)

        return [up.g(y), again(y)]

    def h(self, x):
        parent = super(EmuMLP, self)
        if hasattr(parent, "f") and not hasattr(parent, "h"):
            return getattr(super(), "f", None)(x)
        return getattr(super(), "h", x)

    def most(self):
        return getattr(super(), "sizes", ()), hasattr(super(), "sizes")


__all__ = ["EmuMLP"]
