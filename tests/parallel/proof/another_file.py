"""A file beside those of a model, which keeps a number for it."""

_NUMBER = None


def remember(number):
    global _NUMBER
    _NUMBER = number


def remembered():
    return _NUMBER
