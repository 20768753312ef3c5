REGISTRY = {}
FIELDS = {}


def register(name):
    def inner(cls):
        REGISTRY[name] = cls
        return cls

    return inner


@register("llama")
class LlamaEntered:
    size = 1


class LlamaField:
    def __set_name__(self, owner, name):
        FIELDS.setdefault(owner, []).append(name)


class LlamaFields:
    first = LlamaField()


class LlamaOwnClass:
    """Llama."""

    __scale = 2

    def is_own(self):
        return __class__ is type(self)

    def same(self, other):
        return isinstance(other, LlamaOwnClass)
