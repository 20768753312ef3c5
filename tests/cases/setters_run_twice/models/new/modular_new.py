from ..old.modeling_old import OldMLP, OldOther


class NewMLP(OldMLP):
    def __init__(self):
        super().__init__()
        self.width = 2


class NewOther(OldOther):
    def __init__(self):
        super().__init__()
        self.size = 2
