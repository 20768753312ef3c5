class LlamaCapture:
    def __init__(self, config):
        self.scale = lambda x: x * config
        self.size = 1


class LlamaWalk:
    def __init__(self, config):
        def walk(x):
            return walk(x - 1) if x else 0

        self.walk = walk


class LlamaRebind:
    def __init__(self, x):
        x = x + 1
        self.x = x
