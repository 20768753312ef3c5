from torch import nn

from ...utils import logging


logger = logging.get_logger(__name__)


class LlamaLayerNorm(nn.Module):
    def forward(self, x):
        return x


LlamaLayerNorm.eps = 1

try:
    from apex.normalization import FusedRMSNorm

    LlamaLayerNorm = FusedRMSNorm  # noqa

    logger.info("Discovered apex")
except ImportError:
    # using the normal LlamaLayerNorm
    pass


class LlamaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = LlamaLayerNorm()
