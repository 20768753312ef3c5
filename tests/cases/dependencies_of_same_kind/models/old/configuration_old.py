from enum import Enum


class OldMode(Enum):
    FAST = "fast"
    EXACT = "exact"


class ConfigBase:
    def __init__(self, **kwargs):
        self.rest = kwargs


class OldConfig(ConfigBase):
    model_type = "old"

    def __init__(self, mode="fast", **kwargs):
        super().__init__(**kwargs)
        self.mode = OldMode(mode)


__all__ = ["OldConfig", "OldMode"]
