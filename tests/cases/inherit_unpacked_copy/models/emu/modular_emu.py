from ..llama.modeling_llama import LlamaKeep, LlamaLook, LlamaPop


class EmuPop(LlamaPop):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.other = kwargs.get("rope")


class EmuKeep(LlamaKeep):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.rope = kwargs.pop("rope", None)


class EmuLook(LlamaLook):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.rope = kwargs.pop("rope", None)


class EmuFirst(LlamaPop):
    def __init__(self, **kwargs):
        self.options = kwargs
        super().__init__(**kwargs)
