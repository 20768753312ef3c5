from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.size = 2 * self.width
        del self.width
        self.depth = 1
        del self.depth

    def forward(self, value):
        scaled = value + 1
        super().forward(value)
        del scaled
