class LlamaPoint:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, LlamaPoint) and self.x == other.x


class LlamaPair(LlamaPoint):
    pass
