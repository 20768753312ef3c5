from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldModel


class NewConfig(OldConfig):
    def build(self):
        return NewModel(self)


class NewModel(OldModel):
    def __init__(self, config: NewConfig):
        super().__init__(config)


__all__ = ["NewConfig", "NewModel"]
