class LlamaBase:
    def __init__(self, config=None):
        self.scale = 2


class LlamaMLP(LlamaBase):
    def __init__(self, config=None):
        super().__init__(config)
        self.bias = 1
