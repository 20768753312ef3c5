from baselib.models.llama.modeling_llama import LlamaMLP


class NewMLP(LlamaMLP):
    pass
