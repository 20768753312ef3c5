from .models.llama import modeling_llama
from .models.llama.modeling_llama import LlamaLayer


TABLE = {}
TABLE["layer"] = LlamaLayer


def scaled(x):
    return 2 * x


modeling_llama.LlamaMLP.scaled = scaled
