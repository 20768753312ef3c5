class LlamaBase:
    depth = 0

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.depth = cls.depth + 1

    @classmethod
    def own_names(cls):
        return sorted(vars(cls))


class LlamaMLP(LlamaBase):
    def size(self):
        return self.depth
