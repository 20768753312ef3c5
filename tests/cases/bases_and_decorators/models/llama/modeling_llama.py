from torch import nn

from ...modeling_utils import PreTrainedModel
from ...utils import auto_docstring, can_return_tuple


class LlamaLayer(nn.Module):
    pass


@auto_docstring
class LlamaPreTrainedModel(PreTrainedModel):
    @can_return_tuple
    def first(self):
        return 1

    @can_return_tuple
    @auto_docstring
    def second(self):
        return 2

    @can_return_tuple
    def third(self):
        return 3


@auto_docstring(custom_intro="llama")
class LlamaModel(LlamaPreTrainedModel):
    pass


@auto_docstring
class LlamaOther(LlamaPreTrainedModel):
    pass
