from ..llama.modeling_llama import LlamaPop


class EmuPop(LlamaPop):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.other = kwargs.get("rope")
