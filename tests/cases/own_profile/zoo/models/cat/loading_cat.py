import os

import jaxlib

from ...loaders import LoaderBase


def scaled(x):
    return jaxlib.scale(x, os.sep)


class CatLoader(LoaderBase):
    def load(self, x):
        return scaled(x)
