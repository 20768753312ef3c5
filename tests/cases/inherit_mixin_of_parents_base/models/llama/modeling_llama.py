class LlamaPreTrainedModel:
    def size(self):
        return "base"

    def depth(self):
        return 1


class LlamaModel(LlamaPreTrainedModel):
    def size(self):
        return "model " + super().size()


class LlamaBlock:
    def size(self):
        return "block"


class LlamaLayer(LlamaBlock):
    def size(self):
        return "layer " + super().size()
