from ..llama.modeling_llama import LlamaPair, LlamaPoint


class EmuPixel(LlamaPoint):
    pass


class EmuVoxel(LlamaPoint):
    pass


class EmuPair(LlamaPair):
    pass
