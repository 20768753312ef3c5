from ...shared import Root


class LlamaNorm(Root):
    def __init__(self, config):
        self.down = 1
        self.total = self.size + 1

    @property
    def size(self):
        return self.down * 10
