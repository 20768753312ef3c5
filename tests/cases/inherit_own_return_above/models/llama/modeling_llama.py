class LlamaHead:
    def __init__(self, config):
        self.head = None
        self.size = 1
        self.rate = 0


class LlamaTail:
    def __init__(self, config):
        self.head = None
        self.size = 1
