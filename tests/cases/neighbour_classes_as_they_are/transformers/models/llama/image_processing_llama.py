class LlamaImageProcessorKwargs:
    size: int


def smart_resize(x):
    return x
