from ..bert.modeling_bert import BertAttention
from ..llama.modeling_llama import LlamaNorm


class EmuNorm(LlamaNorm):
    pass


class EmuAttention(BertAttention):
    pass
