from torch import nn


class LlamaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x):
        return self.up_proj(x)
