from .blocks import Feed as LlamaMLP


class LlamaLayer:
    def __init__(self):
        self.mlp = LlamaMLP()
