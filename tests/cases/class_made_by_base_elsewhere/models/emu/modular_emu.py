from ..llama.modeling_llama import LlamaCounting, LlamaLooking, LlamaMade, LlamaRegistered


class EmuCounting(LlamaCounting):
    pass


class EmuLooking(LlamaLooking):
    pass


class EmuRegistered(LlamaRegistered):
    pass


class EmuMade(LlamaMade):
    pass


__all__ = ["EmuCounting", "EmuLooking", "EmuMade", "EmuRegistered"]
