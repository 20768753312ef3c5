from ..old.configuration_old import OldConfig, old_width
from ..old.modeling_old import OldMLP


class NewConfig(OldConfig):
    pass


class NewMLP(OldMLP):
    def backward(self, x):
        return old_width(-x)
