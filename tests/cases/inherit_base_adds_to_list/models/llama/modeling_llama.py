LLAMA_NAMES = []


class LlamaBase:
    heirs = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        words = []
        words.append(cls.__name__)
        LLAMA_NAMES.append(words)
        LlamaBase.heirs[cls.__name__] = cls


class LlamaMLP(LlamaBase):
    def size(self):
        return len(LLAMA_NAMES)
