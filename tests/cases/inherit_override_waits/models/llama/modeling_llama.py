class LlamaRoot:
    def __init__(self, size=1):
        self.size = size


class LlamaCount:
    def __init__(self, config, layers):
        self.total = 0
        self.given = 0
        self.number = 0
        self.rate = config.rate
        layers.append(1)
        config.rate = 0
        self.late = 5

    @property
    def doubled(self):
        return self.late * 2

    def compute(self):
        return self.doubled


class LlamaSet:
    def __init__(self, size):
        self.out = 1
        self.items = []
        self.setup(size)

    def setup(self, size):
        self.out = size
        self.items.append(size)


class LlamaLate(LlamaRoot):
    def __init__(self, size=1):
        self.size = 1
        super().__init__(size)


class LlamaGiven:
    def __init__(self, head=1, **kwargs):
        self.head = head
        for key, value in kwargs.items():
            setattr(self, key, value)


class LlamaAttached:
    def __init__(self, size):
        self.size = 0
        self.copied = 0
        self.counted = 0
        attach(self, size)
        self.late = size * 2

    def named(self):
        return self.__dict__.items()


def attach(module, size):
    module.size = size
