import contextlib
import functools

import torch
from torch import nn

from ...utils import auto_docstring, can_return_tuple
from ...utils.deprecation import deprecate_kwarg
from ...utils.deprecation import deprecate_kwarg as old_name


def counted(function):
    return function


class LlamaModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.hidden_size)

    @can_return_tuple
    @auto_docstring
    def forward(self, hidden_states, scale=1.0):
        """Run it."""
        return self.up(hidden_states) * scale

    @deprecate_kwarg("old", "5.30.0", new_name="first")
    @torch.no_grad()
    # Counts the calls.
    @counted
    def first_goes(self, first):
        return first

    @can_return_tuple
    @old_name("old", "5.30.0", new_name="middle")
    @deprecate_kwarg("older", "5.30.0", new_name="middle")
    @counted
    def middle_goes(self, middle):
        return middle

    @staticmethod
    @functools.cache
    def static(size):
        return size

    @classmethod
    @auto_docstring
    def from_size(cls, size):
        return cls(size)

    @deprecate_kwarg("old", "5.30.0")
    def only_deprecated(self, x):
        return x

    @can_return_tuple
    @auto_docstring
    def own_list(self, x):
        return x

    @can_return_tuple
    @auto_docstring
    def aliased(self, x):
        return x

    @can_return_tuple
    def dotted(self, x):
        return x

    @can_return_tuple
    def other_function(self, x):
        return x

    @can_return_tuple
    def none_inherited(self, x):
        return x

    @torch.no_grad()
    @deprecate_kwarg("old", "5.30.0", new_name="x")
    def inserted(self, x):
        """Insert it."""
        y = self.up(x)
        return y

    @staticmethod
    def was_static(x):
        return x

    @property
    def size(self):
        return self.up.weight.shape

    @size.setter
    def size(self, value):
        self.up = value

    @contextlib.contextmanager
    def frozen(self):
        yield self

    def plain(self, x):
        return x
