from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    pass


__all__ = ["NewMLP"]
