from ..old.modeling_old import OldMLP, OldNorm


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        del self.width
        del self.height
        del self.depth


class NewNorm(OldNorm):
    """Here the parent does not call its base."""

    def __init__(self, config):
        super().__init__(config)
        del self.width


class NewSecondMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.width = self.width
        self.height = self.height
