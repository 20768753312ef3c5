from acme.nets.res.settings_res import ResSettings
from baselib.models.llama.modeling_llama import LlamaMLP

from ...nets.res.net_res import ResBlock


class TinySettings(ResSettings):
    width = 4


class TinyBlock(ResBlock):
    pass


class TinyMLP(LlamaMLP):
    pass
