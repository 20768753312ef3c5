from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaModel


class EmuConfig(LlamaConfig):
    size = 8


class EmuModel(LlamaModel):
    pass
