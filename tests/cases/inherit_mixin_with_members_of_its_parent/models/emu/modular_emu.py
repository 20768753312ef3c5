from ..llama.modeling_llama import LlamaBlock, LlamaLayer


class EmuSized(LlamaBlock):
    def size(self):
        return "sized"


# `depth` of LlamaMiddle comes before that of LlamaBlock, which EmuSized has itself when it is generated.
class EmuLayer(EmuSized, LlamaLayer):
    pass


class EmuDeep(EmuSized, LlamaLayer):
    def depth(self):
        return 3


__all__ = ["EmuDeep", "EmuLayer"]
