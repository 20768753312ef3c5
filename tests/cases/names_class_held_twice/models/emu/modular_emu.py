from ..llama.image_processing_llama import LlamaImageProcessor, LlamaImageProcessorKwargs
from ..llama.image_processing_pil_llama import LlamaImageProcessorPil


class EmuImageProcessorKwargs(LlamaImageProcessorKwargs):
    pass


class EmuImageProcessor(LlamaImageProcessor):
    def __call__(self, **kwargs):
        return EmuImageProcessorKwargs(kwargs)


class EmuImageProcessorPil(LlamaImageProcessorPil):
    def __call__(self, kwargs):
        return isinstance(kwargs, EmuImageProcessorKwargs)
