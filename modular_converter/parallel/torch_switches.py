"""torch's settings of a process that decide what a model computes: types, deterministic operations, kernels, autocast."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar

import torch

from modular_converter.parallel.torch_private import length_of_function_stack


@dataclass(frozen=True)
class TorchSwitches:
    """The settings of one process.

    Attributes:
        autocast: device type -> type of ``torch.autocast``, for those that are on.
        device: type of the default device.
        kernels: those that scaled dot product attention may use: flash, efficient, math, cudnn.
        cudnn: ``enabled``, ``benchmark``, ``deterministic``, ``allow_tf32``.
    """

    autocast: tuple[tuple[str, torch.dtype], ...]
    dtype: torch.dtype
    device: str
    deterministic: tuple[bool, bool]
    precision: str
    kernels: tuple[bool, ...]
    cudnn: tuple[bool, ...]

    @classmethod
    def here(cls) -> TorchSwitches:
        cuda: Any = torch.backends.cuda
        cudnn = torch.backends.cudnn
        return cls(
            tuple(
                (kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)
            ),
            torch.get_default_dtype(),
            "cpu" if not length_of_function_stack() else torch.get_default_device().type,
            (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
            torch.get_float32_matmul_precision(),
            (
                cuda.flash_sdp_enabled(),
                cuda.mem_efficient_sdp_enabled(),
                cuda.math_sdp_enabled(),
                cuda.cudnn_sdp_enabled(),
            ),
            (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32),
        )

    def take_over(self, device: torch.device) -> None:
        """Set this process's settings, except autocast, which is on during calls alone."""
        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        torch.set_default_dtype(self.dtype)
        torch.use_deterministic_algorithms(self.deterministic[0], warn_only=self.deterministic[1])
        torch.set_float32_matmul_precision(self.precision)
        switches = (cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_math_sdp, cuda.enable_cudnn_sdp)
        for switch, on in zip(switches, self.kernels):
            switch(on)
        for name, on in zip(("enabled", "benchmark", "deterministic", "allow_tf32"), self.cudnn):
            setattr(cudnn, name, on)
        torch.set_default_device(device if self.device == device.type != "cpu" else None)

    @contextlib.contextmanager
    def casting(self, device: torch.device) -> Any:
        """A block in which autocast is on as in the caller's process."""
        with contextlib.ExitStack() as stack:
            for kind, dtype in self.autocast:
                if kind in ("cpu", device.type):
                    stack.enter_context(torch.autocast(kind, dtype))
            yield

    def as_dict(self) -> dict[str, Any]:
        """Name -> value of each setting."""
        return dict(zip((one.name for one in fields(self)), astuple(self)))


class _Blocks(threading.local):
    """Blocks of ``one_thread`` in all threads of Python, with the number that the first of them has found, and in this one."""

    lock = threading.Lock()
    everywhere: ClassVar = [0, 1]
    here = 0


_BLOCKS = _Blocks()


@contextlib.contextmanager
def default_type(kind: torch.dtype) -> Iterator[None]:
    """A block with another default type of torch."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A block with one thread in each operation, for work on small tensors.

    There, threads that wait for each other cost more than they do: a proof for GPT-2 took 249 s of processor time and 16 s
    on 32 cores. Each thread of Python has a number of its own, which a new one takes from the last that was set.
    """
    with _BLOCKS.lock:
        if not _BLOCKS.everywhere[0]:
            _BLOCKS.everywhere[1] = torch.get_num_threads()
        _BLOCKS.everywhere[0] += 1
        _BLOCKS.here += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _BLOCKS.lock:
            _BLOCKS.everywhere[0] -= 1
            _BLOCKS.here -= 1
            if not _BLOCKS.here:
                torch.set_num_threads(_BLOCKS.everywhere[1])
