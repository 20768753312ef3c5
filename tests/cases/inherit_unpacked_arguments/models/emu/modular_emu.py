from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def one(self, *x):
        return super().one(*x)

    def two(self, x, y):
        return super().two(*[y, x])

    def by_name(self, **x):
        return super().by_name(**x)

    def rest(self, x, *rest):
        return super().rest(x, *rest)

    def rest_behind_two(self, x, *rest):
        return super().rest_behind_two(x, *rest)
