from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldMLP


class NewConfig(OldConfig):
    size = 4


class NewMLP(OldMLP):
    pass


__all__ = ["NewConfig", "NewMLP"]
