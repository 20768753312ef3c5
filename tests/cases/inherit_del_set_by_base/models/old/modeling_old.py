from ...base import Root


class OldBase(Root):
    def __init__(self, config):
        super().__init__()
        self.width = 1


class OldMLP(OldBase):
    def __init__(self, config):
        super().__init__(config)
        self.width = 2
        self.height = 3
        self.depth = 4


class OldNorm(OldBase):
    def __init__(self, config):
        self.width = 2
