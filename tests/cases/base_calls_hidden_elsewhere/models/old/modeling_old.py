from ...shared import Root


class OldMLP(Root):
    pass
