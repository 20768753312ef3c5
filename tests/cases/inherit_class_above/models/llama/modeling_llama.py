from functools import cached_property


class LlamaRoot:
    def scale(self, x):
        return x

    def size(self):
        return 1


class LlamaMLP(LlamaRoot):
    values = {"a": 1}

    def __new__(cls, size=1):
        made = super().__new__(cls)
        made.size_given = size
        return made

    def __class_getitem__(cls, key):
        return cls.values[key]

    @cached_property
    def table(self):
        return [self.size_given]

    def scale(self, x):
        return 10 * super().scale(x)
