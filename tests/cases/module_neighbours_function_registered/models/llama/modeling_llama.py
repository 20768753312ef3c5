ACT = {}


def reg(f):
    ACT[f.__name__] = f
    return f


@reg
def relu(x):
    return max(x, 0)


class LlamaMLP:
    def f(self, x):
        return ACT['relu'](x)
