from functools import singledispatch


LLAMA_ACT = {"relu": lambda x: max(x, 0)}


def register_llama(name):
    def enter(function):
        LLAMA_ACT[name] = function
        return function

    return enter


@singledispatch
def show(x):
    return "any"


class LlamaMLP:
    act = "relu"

    def forward(self, x):
        return show(LLAMA_ACT[self.act](x))
