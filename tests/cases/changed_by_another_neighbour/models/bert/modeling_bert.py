from ..llama.modeling_llama import LlamaAttention


def fast(self, x):
    return x + 100


LlamaAttention.forward = fast


class BertLayer:
    pass
