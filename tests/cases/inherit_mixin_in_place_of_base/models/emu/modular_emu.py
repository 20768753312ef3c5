from ...shared import FastGenerationMixin, OtherGenerationMixin, PlainGenerationMixin
from ..llama.modeling_llama import LlamaForCausalLM, LlamaForImages, LlamaForPlain, LlamaForSpeech


class EmuForCausalLM(FastGenerationMixin, LlamaForCausalLM):
    pass


class EmuForPlain(PlainGenerationMixin, LlamaForPlain):
    pass


class EmuForSpeech(FastGenerationMixin, LlamaForSpeech):
    pass


# This mixin is no GenerationMixin, and stands behind the one of LlamaForImages.
class EmuForImages(LlamaForImages, OtherGenerationMixin):
    pass


__all__ = ["EmuForCausalLM", "EmuForImages", "EmuForPlain", "EmuForSpeech"]
