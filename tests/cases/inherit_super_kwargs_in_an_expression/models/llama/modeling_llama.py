class LlamaMLP:
    def f(self, a, b=2, *, c=3, **kwargs):
        return a, b, c, kwargs

    def g(self, x, y=1):
        return x + y
