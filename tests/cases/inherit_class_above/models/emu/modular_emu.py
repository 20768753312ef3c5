from functools import cached_property

from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __new__(cls, size=1):
        made = super().__new__(cls, size)
        made.more = size + 1
        return made

    def __class_getitem__(cls, key):
        return 2 * super().__class_getitem__(key)

    @cached_property
    def table(self):
        return [*super().table, self.more]

    def scale(self, x):
        # `super(LlamaMLP, self)` searches behind the parent.
        super(LlamaMLP, self).scale(x)
        return [super(LlamaMLP, self).scale(one) for one in (x, "super(LlamaMLP, self)")]

    def half(self):
        return LlamaMLP.size(self) / 2


__all__ = ["EmuMLP"]
