from acme.config import BaseConfig


class TernConfig(BaseConfig):
    model_type = "tern"
