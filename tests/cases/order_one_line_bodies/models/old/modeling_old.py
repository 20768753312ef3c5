from torch import nn


class OldLayer(nn.Module):
    def copies(self):
        return OldSmall(), OldLarge(), OldHuge()


class OldSmall(OldLayer): size = 1


class OldLarge(  # of all:
    OldLayer,
):
    size = 2


@nn.register(name=")", of=[1, 2])
class OldHuge(OldLayer): size = 3


class OldModel(nn.Module):
    def forward(self, x):
        return OldLayer()(x)
