class LlamaModel:
    def __init__(self, config):
        self.size = config.size
