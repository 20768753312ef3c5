class LlamaCfg:
    size = 3
DEFAULT = LlamaCfg()
SIZES = [DEFAULT.size, LlamaCfg.size]
def make(c=DEFAULT, cls=LlamaCfg):
    return c.size, cls.size
class LlamaMLP:
    default = DEFAULT
    cfg_cls = LlamaCfg
    def f(self): return make(), SIZES, self.default.size, self.cfg_cls.size


class LlamaTable:
    sizes = {}

    def __init__(self):
        self.sizes["cfg"] = LlamaCfg.size


def fill():
    return LlamaTable()


FILLED = fill()


class LlamaHead:
    table = FILLED
