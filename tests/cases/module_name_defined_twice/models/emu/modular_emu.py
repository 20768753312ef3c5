from ..llama.modeling_llama import LlamaBlock


class EmuBlock(LlamaBlock):
    pass


__all__ = ["EmuBlock"]
