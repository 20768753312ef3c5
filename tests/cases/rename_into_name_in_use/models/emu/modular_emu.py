from ..llama.modeling_llama import LlamaHead, LlamaMLP, LlamaNorm, LlamaSizes


class EmuHead(LlamaHead):
    pass


class EmuMLP(LlamaMLP):
    pass


class EmuNorm(LlamaNorm):
    def forward(self, x):
        return x


class EmuSizes(LlamaSizes):
    pass
