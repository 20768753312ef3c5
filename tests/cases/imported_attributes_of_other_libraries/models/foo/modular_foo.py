from ..dia.configuration_dia import DiaConfig
from ..dia.modeling_dia import DiaMask


class FooConfig(DiaConfig):
    pass


class FooMask(DiaMask):
    pass
