class LlamaImageProcessorKwargs(dict):
    pass


class LlamaImageProcessor:
    def __call__(self, **kwargs):
        return LlamaImageProcessorKwargs(kwargs)
