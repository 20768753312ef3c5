from ..llama.modeling_llama import LlamaBackend, LlamaBox, LlamaCounter


class EmuCounter(LlamaCounter):
    act = lambda self, x: 2 * super(EmuCounter, self).act(x)  # noqa: E731

    @property
    def names(self):
        return super().names + ["emu"]

    def order(self):
        return super().order()

    @property
    def width(self):
        return super().width

    @width.setter
    def width(self, value):
        super(EmuCounter, type(self)).width.fset(self, value + 1)

    def total(self, x):
        def twice(y):
            return 2 * super(EmuCounter, self).total(y)

        return twice(x) + sum(y for y in [super().total(x)])


class EmuBackend(LlamaBackend):
    def load(self, name):
        return ["emu", *super().load(name)]


class EmuBox(LlamaBox[int]):
    def get(self):
        return [super().get()]

    def put(self, value):
        return [super().put(value)]


__all__ = ["EmuCounter", "EmuBackend", "EmuBox"]
