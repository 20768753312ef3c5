"""Copies of small models: deriving and proving one plan takes dozens."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any, TypeVar

import torch


_Model = TypeVar("_Model", bound=torch.nn.Module)
_CONTAINERS = (OrderedDict, dict, list, set)


def copy_of(model: _Model) -> _Model:
    """The same as `copy.deepcopy`, in half of its time for a small model.

    A module has a dozen dictionaries of hooks, mostly empty ones, which `copy` takes apart one by one.
    """
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if type(value) in _CONTAINERS and not value:
                memo[id(value)] = type(value)()
    return copy.deepcopy(model, memo)
