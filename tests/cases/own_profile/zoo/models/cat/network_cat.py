from ...layers import RootNetwork, Layer, SavingLayer
from ..registry import find
from .settings_cat import CatSettings


_WEIGHTS_FOR_DOC = "zoo/cat"
_OTHER_FOR_DOC = "other"
CAT_HELP = "Help on cat."


def shown():
    return (_WEIGHTS_FOR_DOC, _OTHER_FOR_DOC, CAT_HELP, find)


class CatBlock(Layer):
    def __init__(self, config: CatSettings):
        super().__init__()
        self.width = config.width
        self.finish()

    # Taken from zoo.models.older.network_older.OlderBlock.forward
    def forward(self, x):
        return x


class CatRootNetwork(RootNetwork):
    def setup(self):
        return shown()
