from .modeling_llama import LlamaMLP, scale
