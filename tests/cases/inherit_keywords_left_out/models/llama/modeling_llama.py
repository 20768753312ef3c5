from ...shared import Entered


class LlamaBase:
    def __init_subclass__(cls, kind="plain", size=1, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.kind, cls.size = kind, size


class LlamaMLP(LlamaBase, kind="mlp", size=2):
    pass


class LlamaLayer(Entered, key="layer"):
    pass
