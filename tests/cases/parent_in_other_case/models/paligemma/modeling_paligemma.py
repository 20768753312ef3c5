from dataclasses import dataclass

from torch import nn

from ...modeling_outputs import BaseModelOutputWithPast
from ...utils import auto_docstring, logging


logger = logging.get_logger(__name__)


@auto_docstring
@dataclass
class PaliGemmaModelOutputWithPast(BaseModelOutputWithPast):
    @property
    def image_hidden_states(self):
        logger.warning_once("`image_hidden_states` of PaliGemma is deprecated.")
        return self.image_outputs.pooler_output


class PaliGemmaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states):
        return self.up_proj(hidden_states)


class PaliGemmaModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = PaliGemmaMLP(config)

    def forward(self, hidden_states):
        return PaliGemmaModelOutputWithPast(self.mlp(hidden_states))
