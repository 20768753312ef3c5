from ...utils import is_vision_available
from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    scale = 6


__all__ = ["EmuMLP"]
if is_vision_available():
    __all__.append("EmuImageMLP")
