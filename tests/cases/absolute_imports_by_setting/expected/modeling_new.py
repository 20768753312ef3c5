# This file was automatically generated from mylib/models/new/modular_new.py.
# Do not edit it, since it is generated again: change modular_new.py, and run `modular-convert`.
from typing import TYPE_CHECKING

from mylib.models.new.configuration_new import NewConfig
from torch import nn

from ...utils import scale


if TYPE_CHECKING:
    from mylib.models.new.configuration_new import NewConfig as Known


class NewMLP(nn.Module):
    def __init__(self, config: NewConfig, known: "Known" = None):
        super().__init__()
        self.up_proj = nn.Linear(config.size, config.size)

    def forward(self, x):
        from mylib.models.new.configuration_new import NewConfig

        return scale(self.up_proj(x), NewConfig.size)


__all__ = ["NewMLP"]
