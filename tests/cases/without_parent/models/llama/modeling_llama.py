import math


def rotate(x):
    return math.sin(x)
