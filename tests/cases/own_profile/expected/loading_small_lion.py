# This file was automatically generated from zoo/models/lion/modular_lion.py.
# Do not edit it, since it is generated again: change modular_lion.py, and run `modular-convert`.
import os

import jaxlib

from ...loaders import LoaderBase


def scaled(x):
    return jaxlib.scale(x, os.sep)


class LIONSmallLoader(LoaderBase):
    def load(self, x):
        return scaled(x) + 1


__all__ = ["LIONSmallLoader"]
