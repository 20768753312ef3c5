from ..llama.configuration_llama import LLAMA_SIZES, LlamaConfig
from ..llama.modeling_llama import LlamaModel


EMU_SIZES = {**LLAMA_SIZES, "huge": 3}
EMU_NAMES = ["a"]


class EmuConfig(LlamaConfig):
    def sizes(self):
        return EMU_SIZES, LLAMA_SIZES, EMU_NAMES


class EmuModel(LlamaModel):
    def own_sizes(self):
        return EMU_SIZES, self.sizes()


__all__ = ["EmuConfig", "EmuModel"]
