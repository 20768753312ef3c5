from ...utils import is_vision_available
from ..llama.modeling_llama import LlamaMLP


if is_vision_available():

    class EmuMLP(LlamaMLP):
        scale = 6


class EmuLayer:
    def __init__(self):
        self.mlp = EmuMLP()
