class LlamaBase:
    def __init_subclass__(cls, kind="none", **kwargs):
        super().__init_subclass__(**kwargs)
        cls.kind = kind


class LlamaMLP(LlamaBase, kind="mlp"):
    def name(self):
        return self.kind
