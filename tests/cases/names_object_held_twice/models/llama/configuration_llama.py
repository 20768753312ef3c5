class LlamaConfig:
    def __init__(self, size=2):
        self.size = size
