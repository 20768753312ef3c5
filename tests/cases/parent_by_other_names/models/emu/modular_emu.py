from ...shared import *
from ..llama.modeling_llama import LlamaRMSNorm, LlamaStack, LlamaTable


class EmuRMSNorm(LlamaRMSNorm):
    eps = doubled(1)


class EmuStack(LlamaStack[int]):
    pass


class EmuLargeTable(LlamaTable):
    pass


__all__ = ["EmuRMSNorm", "EmuStack", "EmuLargeTable"]
