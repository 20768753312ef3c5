class LlamaMLP:
    def f(self, x):
        return x

    def g(self, x):
        return x * 2
