class LlamaMLP:
    def f(self):
        return 1


class LlamaAttention:
    def f(self):
        return 2
