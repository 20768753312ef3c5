from ...utils import deprecated_names
from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaModel


class NewConfig(LlamaConfig):
    pass


class NewModel(LlamaModel):
    pass


__getattr__ = deprecated_names(
    {"OldConfig": "NewConfig"},
)

__all__ = ["NewModel", "NewConfig"]
