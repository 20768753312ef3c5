import contextlib


class LlamaMLP:
    @contextlib.contextmanager
    def replaced(self):
        yield 1

    @contextlib.contextmanager
    def yielding(self):
        yield 1

    @contextlib.contextmanager
    def taken(self):
        yield 1
