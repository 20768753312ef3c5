LIMIT = 3


def doubled(x):
    return 2 * x
