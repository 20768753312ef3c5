from typing import TYPE_CHECKING

from torch import nn

from .configuration_old import OldConfig
from ...utils import scale


if TYPE_CHECKING:
    from .configuration_old import OldConfig as Known


class OldMLP(nn.Module):
    def __init__(self, config: OldConfig, known: "Known" = None):
        super().__init__()
        self.up_proj = nn.Linear(config.size, config.size)

    def forward(self, x):
        from .configuration_old import OldConfig

        return scale(self.up_proj(x), OldConfig.size)
