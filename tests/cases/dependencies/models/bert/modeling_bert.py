SCALE = 3


def scale(x):
    return x * SCALE


def rotate(x):
    return x
