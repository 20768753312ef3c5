from .image_processing_llama import LlamaImageProcessorKwargs


class LlamaImageProcessorPil:
    def __call__(self, kwargs):
        return isinstance(kwargs, LlamaImageProcessorKwargs)
