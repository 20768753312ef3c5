from ...shared import FastGenerationMixin, PlainGenerationMixin
from ..llama.modeling_llama import LlamaForCausalLM, LlamaForPlain, LlamaForSpeech


class EmuForCausalLM(FastGenerationMixin, LlamaForCausalLM):
    pass


class EmuForPlain(PlainGenerationMixin, LlamaForPlain):
    pass


class EmuForSpeech(FastGenerationMixin, LlamaForSpeech):
    pass


__all__ = ["EmuForCausalLM", "EmuForPlain", "EmuForSpeech"]
