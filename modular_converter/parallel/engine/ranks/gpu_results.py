"""Results on GPUs: the main process maps a part of a rank's memory, and reads it when the rank is done."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor


RESULT_BYTES = 256 << 20


class ResultBuffer:
    """GPU memory of a rank for results, mapped by the main process; allocated and lent at its first use.

    A mapping for each result would take about a millisecond a call.
    """

    def __init__(self, size: int = RESULT_BYTES) -> None:
        self.size = size
        self.buffer: torch.Tensor | None = None
        self.usable = True

    def write(self, value: torch.Tensor, offset: int) -> Any:
        """Copy a tensor to the buffer. Returns its place; None if it does not fit or the memory cannot be lent."""
        length = value.numel() * value.element_size()
        if not self.usable or offset + length > self.size or not length:
            return None
        handle = None
        if self.buffer is None:
            self.buffer = torch.empty(self.size, dtype=torch.uint8, device=value.device)
            handle = lent(self.buffer)
            self.usable = handle is not None
            if not self.usable:
                return None
        self.buffer[offset : offset + length].view(value.dtype).view(value.shape).copy_(value)
        return ("mail", value.dtype, tuple(value.shape), offset, handle)


class ResultReader:
    """The receiver's side of a result buffer. Tensors are expected first, and copied when they are complete."""

    def __init__(self) -> None:
        self.buffer: torch.Tensor | None = None
        self.expected: list[tuple[torch.Tensor, torch.Tensor]] = []

    def expect(self, place: torch.Tensor, device: Any) -> torch.Tensor:
        """A new tensor of the receiver for a tensor in the sender's memory; ``read`` fills it."""
        found = torch.empty(place.shape, dtype=place.dtype, device=device)
        self.expected.append((found, place))
        return found

    def look_up(
        self, device: Any, dtype: torch.dtype, shape: tuple[int, ...], offset: int, handle: Any
    ) -> torch.Tensor:
        """A new tensor for a place from ``ResultBuffer.write``; ``read`` fills it."""
        if handle is not None:
            self.buffer = handle[1](*handle[2])
        assert self.buffer is not None
        length = math.prod(shape) * dtype.itemsize
        return self.expect(self.buffer[offset : offset + length].view(dtype).view(shape), device)

    def read(self) -> None:
        """Copy all expected tensors, which must be complete."""
        for found, place in self.expected:
            found.copy_(place)
        self.expected.clear()

    def close(self) -> None:
        """Unmap the sender's memory."""
        self.buffer = None
        self.expected.clear()


def lent(value: torch.Tensor) -> Any:
    """A handle with which another process can map GPU memory; None if the system does not allow it."""
    try:
        return ("shared", *reduce_tensor(value))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
