class LlamaKey:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


class LlamaPair:
    __slots__ = ("first", "second")


class LlamaState:
    def __init__(self):
        self.a = 1
