from torch import nn


class LlamaMixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.use_bias = config.use_bias
        self.in_proj = nn.Linear(config.size, config.size, bias=self.use_bias)
        self.act = config.act
