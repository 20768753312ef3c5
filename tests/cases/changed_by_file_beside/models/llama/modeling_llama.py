class LlamaMLP:
    size = 1


class LlamaLayer:
    pass
