from torch import nn

from ...activations import ACT2FN
from ...utils import is_flash_available
from ..bert.modeling_bert import BertPooler
from .configuration_llama import LlamaConfig


if is_flash_available():
    from ...integrations.flash import attend


class LlamaMLP(nn.Module):
    pooler = BertPooler

    def forward(self, x, config: LlamaConfig):
        from ...cache_utils import Cache

        return Cache(attend(ACT2FN["silu"](x)))
