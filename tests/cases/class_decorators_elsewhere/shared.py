import functools


def loud(cls):
    forward = cls.forward
    cls.forward = lambda self: forward(self) + "!"
    return cls


def counted(cls):
    cls.count = len(vars(cls))
    return cls


def limited(limit):
    def decorate(cls):
        cls.limit = limit
        return cls

    return decorate


def sized(cls):
    cls.total = 2 * cls.size
    return cls


def replaced(cls):
    class Replaced(cls):
        def forward(self):
            return "replaced"

    return Replaced


def noted(cls):
    init = cls.__init__

    def noting(self):
        init(self)
        self.noted = True

    cls.__init__ = noting
    return cls


class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, cls):
        cls.total = self.factor * cls.size
        return cls


def times(factor, cls):
    made = cls
    made.total = factor * made.size
    return made


doubled = functools.partial(times, 2)
tripled = lambda cls: type(cls.__name__, (cls,), {"total": 3 * cls.size})  # noqa: E731


class Table:
    def enter(self, cls):
        for name in dir(cls):
            cls.total = getattr(cls, name)
        return cls


TABLE = Table()


def _entered(cls, name):
    cls.kind = name
    cls.__doc__ = name
    return cls


def entered(name):
    def decorate(cls):
        return _entered(cls, name=name)

    return decorate
