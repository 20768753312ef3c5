from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaModel


class NewConfig(LlamaConfig):
    size = 2


class NewVisionConfig(NewConfig):
    size = 3


class NewModel(LlamaModel):
    def other(self):
        return NewVisionConfig()


__all__ = ["NewConfig", "NewVisionConfig", "NewModel"]
