class LlamaMLP:
    sizes = (1, 2)

    def f(self, x):
        return x

    def g(self, x):
        return x * 2
