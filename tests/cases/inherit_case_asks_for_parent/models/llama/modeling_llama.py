class LlamaBox:
    def __init__(self, size):
        self.size = size


class LlamaCrate(LlamaBox):
    pass
