from torch import nn


class LlamaModel(nn.Module):
    """The docstring of LlamaModel."""

    first = 1
    # Said of the second.
    second: int = 2
    third = 3

    def __init__(self, config):
        """The docstring of __init__."""
        super().__init__()

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, value):
        self._size = value

    @property
    def width(self):
        return 1

    def removed(self):
        return 0

    def documented(self, x: int = 1) -> int:
        """Kept."""
        return x

    # Said of extended.
    def extended(self, x, y=1, *, z: int = 2, **kwargs) -> tuple[int, int]:
        return x, y

    def untouched(self):
        # A comment of llama.
        return "llama"
