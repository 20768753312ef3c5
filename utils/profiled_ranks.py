"""Ranks that also run a call under torch's profiler: `Session(devices, worker="profiled_ranks:ProfiledWorker")`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from modular_converter.parallel.engine.remote.rank_models import Worker


# Kind -> parts of names, of kernels on GPUs and of operations on CPUs. The first match counts.
_KINDS = (
    ("collectives", ("nccl", "allreduce", "all_reduce", "allgather", "gloo:", "c10d::")),
    ("attention", ("flash", "fmha", "attention", "softmax")),
    (
        "products",
        ("gemm", "gemv", "cutlass", "cublas", "splitk", "xmma", "nvjet", "aten::mm", "aten::addmm", "aten::bmm"),
    ),
    ("copies", ("memcpy", "memset", "copy", "cat")),
)


def kind_of_event(name: str) -> str:
    """The kind of work that a kernel or operation does, by its name."""
    low = name.lower()
    return next((kind for kind, marks in _KINDS if any(mark in low for mark in marks)), "other kernels")


def profile(call: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Run ``call`` twice, the second time under the profiler.

    Returns:
        Milliseconds by kind; ``wall`` (milliseconds without the profiler), ``busy`` (milliseconds of all kernels) and
        ``kernels`` (their number).
    """
    _synchronize(device)
    start = time.perf_counter()
    call()
    _synchronize(device)
    wall = (time.perf_counter() - start) * 1e3
    on_gpu = device.type == "cuda"
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        call()
        _synchronize(device)
    found: dict[str, float] = {"wall": wall, "busy": 0.0, "kernels": 0.0}
    for event in profiler.key_averages():
        took = (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e3
        if on_gpu and not took:
            continue
        found[kind_of_event(event.key)] = found.get(kind_of_event(event.key), 0.0) + took
        found["busy"] += took
        found["kernels"] += event.count
    return found


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class ProfiledWorker(Worker):
    """The worker of one rank; each rank answers ``profile`` with its times by kind of work."""

    def on_profile(self, number: int, method: str, args: Any, kwargs: Any) -> None:
        """Run a method of a model under torch's profiler."""
        model: Any = self.models[number].model
        target = model if method == "forward" else getattr(model, method)
        self.answer(profile(lambda: target(*args, **kwargs), self.device))
