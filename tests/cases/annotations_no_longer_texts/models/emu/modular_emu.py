from ..llama.modeling_llama import LlamaOutput


class EmuOutput(LlamaOutput):
    pass


__all__ = ["EmuOutput"]
