from .configuration_old import OldConfig


class OldModel:
    def __init__(self, config: OldConfig):
        self.mode = config.mode
