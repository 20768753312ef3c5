# This file was automatically generated from zoo/models/lion/modular_lion.py.
# Do not edit it, since it is generated again: change modular_lion.py, and run `modular-convert`.
from ...layers import RootNetwork, SavingLayer
from ..registry import find
from .settings_lion import LIONSettings


_WEIGHTS_FOR_DOC = "zoo/lion"


class LIONBlock(SavingLayer):
    def __init__(self, config: LIONSettings):
        super().__init__()
        self.width = config.width
        self.mane = config.width
        self.finish()

    def forward(self, x):
        return super().forward(x)


_OTHER_FOR_DOC = "other"
LION_HELP = "Help on lion."


def shown():
    return (_WEIGHTS_FOR_DOC, _OTHER_FOR_DOC, LION_HELP, find)


class LIONRootNetwork(RootNetwork):
    def setup(self):
        return shown()

    def extra(self):
        return self.setup()

    def close(self):
        return super().close()


__all__ = ["LIONBlock", "LIONRootNetwork"]
