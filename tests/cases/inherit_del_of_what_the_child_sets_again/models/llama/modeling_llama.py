class LlamaMLP:
    def __init__(self, config):
        self.up = 1
        self.width = 2

    def build(self):
        self.width = 3


class LlamaAttention:
    def __init__(self, config):
        self.up = 1
        self.width = 2


class LlamaNorm:
    def __init__(self, config):
        self.up = 1
        self.width = 2


class LlamaLayer:
    def __init__(self, config):
        self.up = 1
        self.width = 2
