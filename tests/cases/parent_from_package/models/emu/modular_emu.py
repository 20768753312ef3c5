from ..llama import LlamaMLP


class EmuMLP(LlamaMLP):
    pass
