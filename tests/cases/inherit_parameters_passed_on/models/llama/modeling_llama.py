class LlamaMLP:
    def __init__(self, config, size=2, *, flag=False):
        self.config, self.size, self.flag = config, size, flag

    def f(self, x=1, y=2, *rest, z=3, **kw):
        return x, y, rest, z, kw

    def g(self, x, y):
        return x + y

    def h(self, x, y):
        return x + y

    @classmethod
    def made(cls, x, size=3):
        return cls(x, size)

    def keep(self, x, mask=None):
        self.x = x
        self.mask = mask
