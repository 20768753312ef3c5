class LlamaBase:
    def __init_subclass__(cls, kind=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind = kind


class LlamaMLP(LlamaBase, kind="mlp"):
    pass


class LlamaSized:
    def __init_subclass__(cls, size=1, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.size = size


class LlamaLayer(LlamaSized, LlamaBase, kind="layer"):
    pass
