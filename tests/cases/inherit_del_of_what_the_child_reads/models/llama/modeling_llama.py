class LlamaLayer:
    def __init__(self, config):
        self.up = config
        self.down = config
