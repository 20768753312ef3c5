from torch import nn


class LlamaMLP(nn.Module):
    def __init__(self, config, size, **kwargs):
        super().__init__()
        self.proj = nn.Linear(config.width, size)
