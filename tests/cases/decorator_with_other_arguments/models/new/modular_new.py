from ...scales import described, noted, scaled
from ..llama.modeling_llama import LlamaMLP


class NewMLP(LlamaMLP):
    @scaled(3)  # with inheritance both apply: 3 * (2 * (x + 1))
    def first(self, x):
        return super().first(x)

    @scaled(2)
    def second(self, x):
        return super().second(x)

    @described("the third of new", by=None)
    def third(self, x):
        return super().third(x)

    @noted(times=2)
    def fourth(self, x):
        return super().fourth(x)

    @scaled(3)
    def fifth(self, x):
        return x - 1

    @scaled("by three")  # texts of several words are for readers
    def sixth(self, x):
        return super().sixth(x)

    @scaled("three")
    def seventh(self, x):
        return super().seventh(x)
