"""Runs that leave a model as it is: some forwards write to weights, such as embeddings with ``max_norm``, and some keep
what they compute. A run that finds a kept value does not use the weights that it was computed from.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch


_MAPPINGS = (dict, OrderedDict)


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Give parameters, buffers and attributes that change within the context their values back at its end."""
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in (*model.parameters(), *model.buffers())]
    try:
        with same_attributes(model):
            yield
    finally:
        with torch.no_grad():
            for tensor, version, value in before:
                if tensor._version != version:
                    tensor.copy_(value)


@contextlib.contextmanager
def same_attributes(model: torch.nn.Module) -> Iterator[None]:
    """The same for attributes alone, with the entries of those that are lists and dictionaries."""
    owners = [vars(module) for module in model.modules()]
    values: list[Any] = [*owners, *(value for own in owners for value in own.values())]
    mappings = [(value, dict(value)) for value in values if type(value) in _MAPPINGS]
    lists = [(value, list(value)) for value in values if type(value) is list]
    try:
        yield
    finally:
        for value, was in mappings:
            value.clear()
            value.update(was)
        for value, entries in lists:
            value[:] = entries
