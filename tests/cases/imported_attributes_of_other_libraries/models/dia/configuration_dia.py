from ...configuration_utils import PreTrainedConfig


class DiaConfig(PreTrainedConfig):
    model_type = "dia"
    diameter: int = 4
    diagonal: int = 1
