from .configuration_llama import LlamaConfig


class LlamaModel:
    config_class = LlamaConfig
