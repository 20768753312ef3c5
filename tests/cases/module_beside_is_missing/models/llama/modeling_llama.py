from torch import nn


class LlamaMLP(nn.Module):
    def forward(self, x):
        return x
