from ..llama.modeling_llama import LlamaAttention, LlamaMLP


Base = LlamaMLP
Attention = LlamaAttention


class EmuMLP(Base):
    def f(self):
        print("f")
        return super().f()


class EmuAttention(Attention):
    pass
