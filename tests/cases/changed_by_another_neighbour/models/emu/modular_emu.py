from ..bert.modeling_bert import BertLayer
from ..llama.modeling_llama import LlamaAttention, LlamaMLP


class EmuAttention(LlamaAttention):
    pass


class EmuMLP(LlamaMLP):
    pass


class EmuLayer(BertLayer):
    pass


__all__ = ["EmuAttention", "EmuLayer", "EmuMLP"]
