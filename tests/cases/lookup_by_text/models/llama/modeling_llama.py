import copy


LLAMA_SCALE = 2


def scaled(x):
    return x * LLAMA_SCALE


class LlamaMLP:
    def looked_up(self, x):
        return globals()["scaled"](x)

    def evaluated(self, x):
        return eval("scaled(x)")

    def named(self, name):
        return getattr(self, f"llama_{name}")

    def harmless(self, name):
        copy.copy(self).eval()
        return getattr(self, f"own_{name}"), getattr(self, name)
