from ...generation import GenerationMixin
from ...modeling_layers import GradientCheckpointingLayer
from ...utils import auto_docstring
from ...utils.generic import no_inherit_decorator
from ..llama.modeling_llama import LlamaLayer, LlamaModel, LlamaOther, LlamaPreTrainedModel
from .base_new import MyPreTrainedModel


class NewLayer(LlamaLayer, GradientCheckpointingLayer):
    pass


class NewPreTrainedModel(LlamaPreTrainedModel, MyPreTrainedModel):
    def first(self):
        return 10

    @auto_docstring
    def second(self):
        return 20

    @no_inherit_decorator
    def third(self):
        return 30


@auto_docstring(custom_intro="new")
class NewModel(LlamaModel, GenerationMixin):
    pass


@no_inherit_decorator
class NewOther(LlamaOther):
    pass
