from torch import nn

from ..old.modeling_old import OldMLP, OldModel


class CountingModule:
    count = 0


class RotaryMixin:
    angle = 1


class NewMLP(OldMLP, CountingModule):
    pass


class NewModel(RotaryMixin, OldModel):
    pass
