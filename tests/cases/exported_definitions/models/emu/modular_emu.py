from ..llama.modeling_llama import LLAMA_SIZES, LlamaGate, LlamaMLP, largest


EMU_ALL_SIZES = [*LLAMA_SIZES, 70]


class EmuMLP(LlamaMLP):
    size = 70


def make_emu(x):
    return EmuMLP().forward(x), largest(EMU_ALL_SIZES)


EmuFeedForward = EmuMLP
EmuRouter = LlamaGate

__all__ = ["EMU_ALL_SIZES", "EmuFeedForward", "EmuMLP", "EmuRouter", "largest", "make_emu"]
