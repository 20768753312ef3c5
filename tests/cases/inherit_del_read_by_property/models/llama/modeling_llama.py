from ...shared import Root


class LlamaNorm(Root):
    def __init__(self, config):
        self.down = 1
        self.total = self.sum()
        self.eps = 2
        self.reset()

    def sum(self):
        return self.high + 1

    @property
    def high(self):
        return self.down * 10

    def reset(self):
        self.eps += 1
