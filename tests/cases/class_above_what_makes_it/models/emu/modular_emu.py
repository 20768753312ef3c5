from ..llama.modeling_llama import LlamaCfg, LlamaHead, LlamaMLP, LlamaTable


class EmuMLP(LlamaMLP):
    def g(self):
        return isinstance(self.default, EmuCfg)


class EmuCfg(LlamaCfg):
    size = 30


class EmuHead(LlamaHead):
    pass


class EmuTable(LlamaTable):
    extra = 1
