class LlamaBase:
    def __init_subclass__(cls, kind=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind = kind


class LlamaMLP(LlamaBase, kind="mlp"):
    pass
