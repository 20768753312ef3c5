"""Runs that leave a model's weights as they are: some forwards write to them, such as embeddings with ``max_norm``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Give parameters and buffers that are written to within the context their values back at its end."""
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in (*model.parameters(), *model.buffers())]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, version, value in before:
                if tensor._version != version:
                    tensor.copy_(value)
