class LlamaCache:
    def __init__(self, config):
        self.kept = 1
        self.size = config

    def fill(self, value):
        self.kept = value
        self.last = value
