from ..llama.modeling_llama import LlamaAttached, LlamaCount, LlamaGiven, LlamaLate, LlamaSet


def count(counter):
    return counter.late


class EmuCount(LlamaCount):
    def __init__(self, config, layers):
        super().__init__(config, layers)
        self.total = self.compute()
        self.given = count(self)
        self.number = len(layers)
        self.rate = config.rate + 1


class EmuSet(LlamaSet):
    def __init__(self, size):
        super().__init__(size)
        self.out = 77
        self.items = [5]


class EmuLate(LlamaLate):
    def __init__(self, size=1):
        super().__init__(size)
        self.size = 3


class EmuGiven(LlamaGiven):
    def __init__(self, head=1, **kwargs):
        super().__init__(head, **kwargs)
        self.head = 3


class EmuAttached(LlamaAttached):
    def __init__(self, size):
        super().__init__(size)
        self.size = 7
        self.copied = dict(self.__dict__)
        self.counted = len(self.named())
