from torch import nn


def rescale(x):
    return 2 * x


class LlamaMLP(nn.Module):
    def forward(self, x):
        return x
