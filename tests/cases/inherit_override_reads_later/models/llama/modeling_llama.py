from torch import nn


class LlamaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = config.width
        self.scale = 1.0
        self.depth = config.depth


class LlamaNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.eps = config.eps
        self.scale = 1.0
        self.factor = 1
