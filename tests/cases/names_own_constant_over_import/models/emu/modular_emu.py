from ..llama.modeling_llama import LlamaMLP


LIMIT = 3
math = {"pi": 3}


def clip(x, most):
    return min(x, most)


class EmuMLP(LlamaMLP):
    def area(self):
        return math["pi"] * LIMIT
