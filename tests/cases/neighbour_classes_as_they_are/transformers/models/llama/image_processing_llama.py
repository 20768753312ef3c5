def smart_resize(x):
    return x


class LlamaImageProcessorKwargs:
    size: int

    def resize(self, x):
        return smart_resize(x)
