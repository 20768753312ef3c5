SCALE = 1
DOUBLE = 2 * SCALE
SCALE = 5


def act(x):
    return x + 1


FIRST = act(0)


def at_call(x=act(0)):
    return act(x)


def late():
    return act(1)


def act(x):
    return x + 2


class LlamaNorm:
    eps = 1


class LlamaBlock(LlamaNorm):
    def forward(self):
        return DOUBLE, SCALE, FIRST, at_call(), late(), LlamaNorm().eps


class LlamaNorm:
    eps = 2
