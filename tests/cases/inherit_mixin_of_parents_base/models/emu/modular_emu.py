from ..llama.modeling_llama import LlamaBlock, LlamaLayer, LlamaModel, LlamaPreTrainedModel


class EmuPreTrainedModel(LlamaPreTrainedModel):
    def depth(self):
        return super().depth() + 1


# `size` of LlamaPreTrainedModel stands behind that of LlamaModel.
class EmuModel(EmuPreTrainedModel, LlamaModel):
    def width(self):
        return self.size()


class EmuSized(LlamaBlock):
    def size(self):
        return "sized"


class EmuLayer(EmuSized, LlamaLayer):
    pass


__all__ = ["EmuLayer", "EmuModel"]
