import math


LLAMA_SCALE = 3


def scaled(x):
    return x * LLAMA_SCALE


class LlamaMLP:
    def size(self):
        return math.floor(1.5)


class LlamaLayer:
    def size(self):
        return LlamaMLP().size()
