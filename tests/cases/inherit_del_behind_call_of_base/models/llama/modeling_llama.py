from ...shared import Root


class LlamaBase(Root):
    def __init__(self, config):
        self.width = 1


class LlamaMLP(LlamaBase):
    def __init__(self, config):
        super().__init__(config)
        self.width = 2
