from acme.nets.tern.configuration_tern import TernConfig
from acme.nets.tern.modeling_tern import TernLayer


class GullConfig(TernConfig):
    pass


class GullLayer(TernLayer):
    pass
