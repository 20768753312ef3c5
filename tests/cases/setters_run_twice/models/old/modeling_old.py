class OldMLP:
    def __init__(self):
        self.log = []
        self.width = 1
        self.depth = 3

    @property
    def width(self):
        return self._width

    @width.setter
    def width(self, value):
        self._width = value
        self.log.append(value)


class OldOther:
    def __init__(self):
        self.size = 1
        self.done = True

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        object.__setattr__(self, "names", getattr(self, "names", []) + [name])
