from torch import nn

from ...nets.res.settings_res import ResSettings
from ...resources import res_init


class ResBlock(nn.Module):
    def __init__(self, settings: ResSettings):
        super().__init__()
        self.inner = res_init(nn.Linear(settings.width, settings.width))
