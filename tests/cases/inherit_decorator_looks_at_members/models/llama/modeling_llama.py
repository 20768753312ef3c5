def with_fields(cls):
    cls.fields = list(cls.__annotations__)
    return cls


def named(tag):
    def decorate(cls):
        cls.members = [name for name in vars(cls) if not name.startswith("_")]
        cls.tag = tag
        return cls

    return decorate


@with_fields
class LlamaOutput:
    logits: int = 1


class LlamaMLP:
    size = 2
