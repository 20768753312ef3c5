class LlamaMLP:
    def __init__(self):
        self.llama = 1
        self.llama_size = 2
    def f(self):
        return self.llama + getattr(self, 'llama_size')
