import math


LLAMA_WIDTH = 4
LLAMA_SIZES = {"llama": LLAMA_WIDTH}


def llama_size(name="llama"):
    return math.floor(LLAMA_SIZES[name])


LLAMA_LATE = 5


def unused():
    return None


class LlamaConfig:
    size = 3
