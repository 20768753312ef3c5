REGISTRY = {}
NAMES = []


def register(name):
    def inner(cls):
        REGISTRY[name] = cls
        return cls

    return inner


class Field:
    def __set_name__(self, owner, name):
        NAMES.append(name)


class Listing(type):
    def __init__(cls, name, bases, namespace):
        super().__init__(name, bases, namespace)
        NAMES.append(len(bases))


class Listed(metaclass=Listing):
    pass
