from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    def __init__(self, mode="exact", **kwargs):
        super().__init__(mode, **kwargs)


__all__ = ["NewConfig", "NewMode"]
