import sys


def double(x):
    return 2 * x


class LlamaMLP:
    up = staticmethod(double)

    if sys.byteorder == "little":

        def forward(self, x):
            return self.up(x)
