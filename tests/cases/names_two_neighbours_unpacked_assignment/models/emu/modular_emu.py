from ..bert.modeling_bert import BertNorm
from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    pass


class EmuNorm(BertNorm):
    pass
