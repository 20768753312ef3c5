from torch import nn

from ...scales import described, noted, scaled


class LlamaMLP(nn.Module):
    @scaled(2)
    def first(self, x):
        return x + 1

    @scaled(2)
    def second(self, x):
        return x + 1

    @described("the third of llama", by=None)
    def third(self, x):
        return x + 1

    @noted
    def fourth(self, x):
        return x + 1

    @scaled(2)
    def fifth(self, x):
        return x + 1

    @scaled("by two")
    def sixth(self, x):
        return x + 1

    @scaled("two")
    def seventh(self, x):
        return x + 1
