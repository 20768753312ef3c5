class LlamaPop:
    def __init__(self, **kwargs):
        self.rope = kwargs.pop("rope", None)


class LlamaKeep:
    def __init__(self, **kwargs):
        self.options = kwargs
        self.size = len({**kwargs})


class LlamaLook:
    def __init__(self, **kwargs):
        self.size = kwargs.get("size", {**kwargs})
