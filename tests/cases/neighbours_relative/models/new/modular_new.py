from ...models.bert.modeling_bert import BertPooler
from ..auto.modeling_auto import AutoModel
from ..llama.modeling_llama import LlamaMLP


class NewMLP(LlamaMLP):
    pass


class NewPooler(BertPooler):
    def build(self, config):
        return AutoModel.from_config(config)
