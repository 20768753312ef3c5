from ...layers import Layer, RootNetwork, SavingLayer
from ..cat.loading_cat import CatLoader
from ..cat.loading_small_cat import CatSmallLoader
from ..cat.network_cat import CatBlock, CatRootNetwork
from ..cat.settings_cat import CatSettings


_WEIGHTS_FOR_DOC = "zoo/lion"
_OTHER_FOR_DOC = "own"
LION_HELP = None


class LIONSettings(CatSettings):
    pass


class LIONBlock(CatBlock, SavingLayer):
    def __init__(self, config: LIONSettings):
        super().__init__(config)
        self.mane = config.width

    def forward(self, x):
        return Layer.forward(self, x)


class LIONRootNetwork(CatRootNetwork):
    def extra(self):
        return self.setup()

    def close(self):
        return RootNetwork.close(self)


class LIONLoader(CatLoader):
    pass


class LIONSmallLoader(CatSmallLoader):
    pass


__all__ = ["LIONSettings", "LIONBlock", "LIONRootNetwork"] + ["LIONLoader", "LIONSmallLoader"]
