from ...shared import NAMES, Field, Listed, register


@register("llama")
class LlamaEntered:
    size = 1


class LlamaFields:
    first = Field()


class LlamaListed(Listed):
    size = 1


class LlamaRoot:
    def __init_subclass__(cls):
        NAMES.append(cls.__mro__)


class LlamaRooted(LlamaRoot):
    size = 1
