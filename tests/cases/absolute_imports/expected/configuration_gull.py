# This file was automatically generated from lib/acme/nets/gull/modular_gull.py.
# Do not edit it, since it is generated again: change modular_gull.py, and run `modular-convert`.

from acme.config import BaseConfig


class GullConfig(BaseConfig):
    model_type = "gull"
