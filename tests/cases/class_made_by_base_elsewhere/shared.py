class Counting:
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.depth = getattr(cls, "depth", 0) + 1


class Looking:
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.own = sorted(vars(cls))


class Registered:
    """A table of another file has the parent too."""

    classes = []

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.label = cls.__name__
        Registered.classes.append(cls)


class Making(type):
    def __new__(metaclass, name, bases, namespace):
        cls = super().__new__(metaclass, name, bases, namespace)
        cls.own = sorted(namespace)
        return cls


class Made(metaclass=Making):
    pass
