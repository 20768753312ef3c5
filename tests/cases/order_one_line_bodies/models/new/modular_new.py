from ..old.modeling_old import OldModel


class NewModel(OldModel):
    pass
