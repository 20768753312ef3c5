from ..resmix.modeling_resmix import ResMixBlock, ResMixNet


class Glm9vTextBlock(ResMixBlock):
    pass


class Glm9vTextNet(ResMixNet):
    pass


__all__ = ["Glm9vTextNet"]
