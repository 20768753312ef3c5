from torch import nn


class ResMixNorm(nn.Module):
    """The norm of ResMix, `resmix` in settings."""


class ResMixBlock(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.resmix_norm = ResMixNorm()


class ResMixNet(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.block = ResMixBlock(settings)
