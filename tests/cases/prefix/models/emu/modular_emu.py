from ..bert.modeling_bert import BertPooler
from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaMLP


class EmuTextConfig(LlamaConfig):
    pass


# What comes from llama is called `EmuText…`.
class EmuTextMLP(LlamaMLP):
    pass


# The model's name before the parent's whole name: what comes from bert is called `EmuBert…`.
class EmuBertPooler(BertPooler):
    pass
