class LlamaMLP:
    def f(self, x):
        self.a = x
        return x + 1
