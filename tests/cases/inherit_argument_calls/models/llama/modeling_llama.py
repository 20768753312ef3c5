class LlamaMLP:
    def difference(self, a, b):
        return a - b

    def forward(self, x, mask=None, **kwargs):
        return x + 1

    def scale(self, x, factor=2, shift=0):
        return factor * x
