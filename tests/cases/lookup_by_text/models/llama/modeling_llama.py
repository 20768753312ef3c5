import copy
import sys


LLAMA_SCALE = 2


def scaled(x):
    return x * LLAMA_SCALE


class LlamaMLP:
    def looked_up(self, x):
        return globals()["scaled"](x)

    def looked_up_in_module(self, name, x):
        return getattr(sys.modules[__name__], name)(x)

    def evaluated(self, x):
        return eval("scaled(x)")

    def named(self, name):
        return getattr(self, f"llama_{name}")

    def harmless(self, name):
        copy.copy(self).eval()
        return getattr(self, f"own_{name}"), getattr(self, name)

    def keyed(self, states, name):
        if name == f"llama_{len(states)}":
            return states[f"llama_{name}"]
        return states.get(f"llama_{name}", states[f"own_{name}"])

    def reported(self, name):
        raise ValueError(f"llama has no {name}, {self[name]} is of llama")
