from enum import Enum

from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldModel


class NewMode(Enum):
    FAST = "fast"


class NewConfig(OldConfig):
    def __init__(self, mode="fast"):
        super().__init__(mode)
        self.mode = NewMode(mode)


class NewModel(OldModel):
    def __init__(self, config: NewConfig):
        super().__init__(config)
        self.is_fast = config.mode is NewMode.FAST


__all__ = ["NewConfig", "NewMode", "NewModel"]
