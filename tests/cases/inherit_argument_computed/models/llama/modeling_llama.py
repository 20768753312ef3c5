from torch import nn


def half(x):
    return x / 2


class LlamaMLP(nn.Module):
    def norm(self, x):
        return x - 1

    def forward(self, x, mask=None, *, scale=1):
        return x, mask, scale

    def twice(self, x):
        y = x
        return y, x

    def build(self, size, **options):
        self.size, self.options = size, options
        return size


class LlamaLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
