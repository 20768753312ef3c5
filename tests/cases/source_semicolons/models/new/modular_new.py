from torch import nn; from ..old.modeling_old import OldMLP; SIZE = 3


class NewMLP(OldMLP):
    size = SIZE
