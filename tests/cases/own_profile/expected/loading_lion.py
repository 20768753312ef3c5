# This file was automatically generated from zoo/models/lion/modular_lion.py.
# Do not edit it, since it is generated again: change modular_lion.py, and run `modular-convert`.
import os

from ...compat import has_jaxlib
from ...loaders import LoaderBase


if has_jaxlib():
    import jaxlib


def scaled(x):
    return jaxlib.scale(x, os.sep)


class LIONLoader(LoaderBase):
    def load(self, x):
        return scaled(x)


__all__ = ["LIONLoader"]
