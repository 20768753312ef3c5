from ..old.modeling_old import OldMLP, old_init


def new_init(weight, scale=3.0):
    return old_init(weight, scale) * 2


class NewMLP(OldMLP):
    pass
