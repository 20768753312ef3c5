# This file was automatically generated from zoo/models/lion/modular_lion.py.
# Do not edit it, since it is generated again: change modular_lion.py, and run `modular-convert`.
class LIONSettings:
    model_type = "lion"

    def __init__(self, width=8):
        self.width = width


__all__ = ["LIONSettings"]
