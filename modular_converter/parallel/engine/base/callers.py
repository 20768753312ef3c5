"""Whose code asks for a weight, a size or a product: that of a forward, which computes with shares, or any other code.

While a sharded model runs its forward, its thread is marked, which answers at once for all that runs in it. Elsewhere (a
module inside that is called by itself, layers that a backward computes again) the frames of the callers answer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from modular_converter.parallel.torch_private import call_impl


_CALL = call_impl.__code__


class _Thread(threading.local):
    group: Any = None
    """The processes of the sharded model whose forward runs."""


_THREAD = _Thread()


def within(group: Any) -> bool:
    """Whether the forward of the whole sharded model of these processes runs in this thread."""
    return _THREAD.group is group


@contextmanager
def forward_of(group: Any) -> Iterator[None]:
    """The block of the forward of a whole sharded model; compiled code has none."""
    before, _THREAD.group = _THREAD.group, group
    try:
        yield
    finally:
        _THREAD.group = before


def called_alone(module: torch.nn.Module) -> bool:
    """Whether the caller's forward, of this module, runs by itself and not in that of a module around it."""
    return _THREAD.group is None and all(around is module for around in _callers())


def runs_in(module: torch.nn.Module, group: Any) -> bool:
    """Whether code of a module's forward, or of one around it, calls the caller; any other code is to see no share.

    Args:
        group: the processes that share out the module.
    """
    return within(group) or any(any(one is module for one in around.modules()) for around in _callers())


def _callers() -> Iterator[torch.nn.Module]:
    """The modules whose forwards are under way, from the inside."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL or frame.f_code.co_name == "forward":
            around = frame.f_locals.get("self")
            if isinstance(around, torch.nn.Module):
                yield around
        frame = frame.f_back  # type: ignore[assignment]
