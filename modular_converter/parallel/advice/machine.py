"""The figures of a device and its links, measured by processes that each have one device; as an entry of a table of devices."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessException, spawn

from modular_converter.parallel.advice.devices import GIB, Cluster, Device, known_devices, name_at_hand
from modular_converter.parallel.advice.recording import RunUse, loss_of
from modular_converter.parallel.advice.subject import model_in_question
from modular_converter.parallel.choice.context_parallel import causal_mask
from modular_converter.parallel.costs import CountRequest, inputs_of
from modular_converter.parallel.errors import AdviceError, one_line
from modular_converter.parallel.shard.collectives import ProcessGroup


BATCHES = 3
"""Of calls that are timed together; the median counts."""
LAYERS = 8
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": LAYERS,
    "vocab_size": 128,
}
"""A model whose operations are so short that the host's work counts."""


class _Sizes:
    """Sizes for which a device is busy long enough to be timed, and no longer."""

    def __init__(self, gpu: bool) -> None:
        self.side = 8192 if gpu else 256
        self.copied = 2**30 if gpu else 2**25
        self.reduced = 2**28 if gpu else 2**23
        self.rows, self.length, self.heads = (4, 2048, 16) if gpu else (1, 256, 4)
        self.calls = 20 if gpu else 3
        self.short_calls = 1000 if gpu else 200


Figures = dict[str, Any]


def measure_rank(rank: int, processes: int, gpu: bool, folder: str) -> None:
    """Measure on one of the processes; the first writes ``figures.json`` into the folder."""
    os.environ["LOCAL_RANK"] = str(rank)
    place = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(place)
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # as torchrun does
    before = _outside(place)
    found = {**_memory(place, processes), **_speeds(place), **_launches(place)}
    found["context_gib"] = before / GIB
    if processes > 1:
        dist.init_process_group(
            "nccl" if gpu else "gloo",
            init_method=(Path(folder) / "store").as_uri(),
            rank=rank,
            world_size=processes,
            device_id=place if gpu else None,
        )
        try:
            held = _outside(place)
            found |= _links(place, processes)
            found |= _units(place, found)
            found["group_gib"] = max(0.0, _outside(place) - held) / GIB
            dist.barrier()
        finally:
            dist.destroy_process_group()
    if rank == 0:
        (Path(folder) / "figures.json").write_text(json.dumps(found), encoding="utf-8")


def _outside(place: torch.device) -> float:
    """Bytes that the device has given to other than torch's allocator: to the driver, or to this process on the host."""
    if place.type == "cuda":
        torch.zeros(1, device=place)
        free, total = torch.cuda.mem_get_info(place)
        return float(total - free - torch.cuda.memory_reserved(place))
    return float(psutil.Process().memory_info().rss)


def _memory(place: torch.device, processes: int) -> Figures:
    if place.type == "cuda":
        return {"memory_gib": torch.cuda.get_device_properties(place).total_memory / GIB}
    return {"memory_gib": psutil.virtual_memory().available / processes / GIB}


def seconds_of(call: Callable[[], Any], place: torch.device, calls: int) -> float:
    """Seconds of one of so many calls in a row, the device idle before and after."""
    call()
    found = []
    for _ in range(BATCHES):
        _wait(place)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        _wait(place)
        found.append((time.perf_counter() - begin) / calls)
    return statistics.median(found)


def _wait(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)


def _speeds(place: torch.device) -> Figures:
    """Products, attention, moved bytes and the shortest operation of a device, alone."""
    sizes = _Sizes(place.type == "cuda")
    calls = sizes.calls
    usual = torch.bfloat16 if place.type == "cuda" else torch.float32
    types = (torch.bfloat16, torch.float16, torch.float32) + ((torch.float64,) if place.type == "cpu" else ())
    before = torch.cuda.memory_allocated(place) if place.type == "cuda" else 0
    peaks = {str(one).rpartition(".")[2]: _product_speed(place, sizes.side, sizes.side, one, calls) for one in types}
    left = torch.cuda.memory_allocated(place) - before if place.type == "cuda" else 0
    peak = peaks[str(usual).rpartition(".")[2]]
    bandwidth = _copy_speed(place, place, sizes)
    return {
        "peaks": {name: speed / 1e12 for name, speed in peaks.items()},
        "products": min(1.0, _product_speed(place, sizes.side // 4, sizes.side, usual, calls) / peak),
        "attention": min(1.0, _attention_speed(place, sizes, usual) / peak),
        "masked": min(1.0, _attention_speed(place, sizes, usual, masked=True) / peak),
        "bandwidth": bandwidth / 1e9,
        "moves": min(1.0, _move_speed(place, sizes, usual) / bandwidth),
        "host_link": _copy_speed(torch.device("cpu"), place, sizes) / 2e9,
        "workspace_mib": left / 2**20,
        "kernel_us": _shortest(place, sizes) * 1e6,
    }


def _copy_speed(start: torch.device, place: torch.device, sizes: _Sizes) -> float:
    """Bytes a second that a copy reads and writes."""
    source = torch.ones(sizes.copied // 4, device=start, pin_memory=start.type != place.type)
    target = torch.empty_like(source, device=place)
    return 2 * sizes.copied / seconds_of(lambda: target.copy_(source, non_blocking=True), place, sizes.calls)


def _product_speed(place: torch.device, inner: int, side: int, dtype: torch.dtype, calls: int) -> float:
    """Floating-point operations a second of a product over ``inner`` entries."""
    left = torch.randn(side, inner, device=place).to(dtype)
    right = torch.randn(inner, side, device=place).to(dtype)
    return 2.0 * side * side * inner / seconds_of(lambda: left @ right, place, calls)


def _attention_speed(place: torch.device, sizes: _Sizes, dtype: torch.dtype, masked: bool = False) -> float:
    """Floating-point operations a second under a causal mask; as a plain one, or as that of the last rows of a sequence."""
    width = 128
    shape = (sizes.rows, sizes.heads, sizes.length, width)
    query, key, value = (torch.randn(shape, device=place).to(dtype) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    pairs: float = sizes.length**2 / 2
    given: dict[str, Any] = {"is_causal": True}
    if masked:
        half = sizes.length // 2
        pairs, query = pairs * 0.75, query[:, :, half:]
        given = {"attn_mask": causal_mask(half, sizes.length, place)}
    seconds = seconds_of(lambda: attend(query, key, value, **given), place, sizes.calls)
    return 4.0 * sizes.rows * sizes.heads * pairs * width / seconds


def _move_speed(place: torch.device, sizes: _Sizes, dtype: torch.dtype) -> float:
    """Bytes a second that a sum, a change of type, and a function of each entry read and write."""
    one = torch.ones(sizes.copied // 4, device=place, dtype=dtype)
    wide = torch.float64 if dtype is torch.float32 else torch.float32

    def move() -> None:
        torch.nn.functional.silu(one)
        one.to(wide)
        one + one  # noqa: B018

    moved = one.numel() * (2 * dtype.itemsize + dtype.itemsize + wide.itemsize + 3 * dtype.itemsize)
    return moved / seconds_of(move, place, sizes.calls)


def _shortest(place: torch.device, sizes: _Sizes) -> float:
    """Seconds of the shortest operation on the device: on a GPU from a graph, so that the host launches once."""
    one = torch.zeros(1, device=place)
    if place.type == "cpu":
        return seconds_of(lambda: one.add_(1), place, sizes.short_calls)
    one.add_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(sizes.short_calls):
            one.add_(1)
    return seconds_of(graph.replay, place, 3) / sizes.short_calls


def _small_model(place: torch.device) -> tuple[Any, dict[str, Any], RunUse]:
    """A small model on the device, its inputs, and the operations of its run."""
    request = CountRequest("llama", SMALL, None, 1, 32, True, "float32")
    subject = model_in_question(request)
    kind: Any = type(subject.model)
    with place:
        model = kind(subject.model.config).train()
    inputs = {**inputs_of(model, replace(request, samples=2), place), "use_cache": False}
    return model, inputs, subject.use(2)


def _passes(model: Any, inputs: dict[str, Any], place: torch.device) -> tuple[float, float, float]:
    """The host's seconds of a forward, of a backward, and of a forward without gradients; it does not wait for the device."""
    forwards, backwards, plain = [], [], []
    for _ in range(2 + 2 * BATCHES):
        _wait(place)
        begin = time.perf_counter()
        with torch.no_grad():
            model(**inputs)
        plain.append(time.perf_counter() - begin)
        _wait(place)
        begin = time.perf_counter()
        loss = loss_of(model(**inputs))
        middle = time.perf_counter()
        loss.backward()  # type: ignore[no-untyped-call]
        forwards.append(middle - begin)
        backwards.append(time.perf_counter() - middle)
        model.zero_grad()
    return statistics.median(forwards[2:]), statistics.median(backwards[2:]), statistics.median(plain[2:])


def _launches(place: torch.device) -> Figures:
    """The host's microseconds of an operation."""
    model, inputs, use = _small_model(place)
    forward, backward, plain = _passes(model, inputs, place)
    counts = [sum(len(getattr(one, name).kernels) for one in use.segments) for name in ("forward", "backward")]
    return {
        "launch_us": forward / counts[0] * 1e6,
        "backward_us": backward / counts[1] * 1e6,
        "plain_us": plain / counts[0] * 1e6,
    }


def _links(place: torch.device, processes: int) -> Figures:
    """The speed and the shortest time of a sum over all processes, and the host's time of one."""
    sizes = _Sizes(place.type == "cuda")
    large, small = torch.ones(sizes.reduced // 4, device=place), torch.ones(1, device=place)
    dist.barrier()
    seconds = seconds_of(lambda: dist.all_reduce(large), place, sizes.calls)
    latency = seconds_of(lambda: dist.all_reduce(small), place, sizes.short_calls // 4)
    group = ProcessGroup(None)
    issued = _issued(lambda: group.all_reduce(small), place, sizes.short_calls // 4)
    waits = latency if place.type == "cpu" else 0.0  # calls on the host end with the exchange
    return {
        "link": 2 * sizes.reduced * (processes - 1) / processes / max(seconds - latency, 1e-9) / 1e9,
        "link_us": latency * 1e6,
        "shared_us": max(0.0, issued - waits) * 1e6,
    }


def _issued(call: Callable[[], Any], place: torch.device, calls: int) -> float:
    """The host's seconds of a call, without waiting for the device."""
    _wait(place)
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    found = (time.perf_counter() - begin) / calls
    _wait(place)
    return found


def _units(place: torch.device, found: Figures) -> Figures:
    """The host's microseconds of a layer of ``fully_shard``, in each direction, beyond those of the layer itself."""
    from torch.distributed.fsdp import fully_shard

    model, inputs, _ = _small_model(place)
    plain = sum(_passes(model, inputs, place))
    for layer in next(one for one in model.modules() if isinstance(one, torch.nn.ModuleList)):
        fully_shard(layer)
    fully_shard(model)
    sharded = sum(_passes(model, inputs, place))
    calls = 3 * (LAYERS + 1) if place.type == "cpu" else 0  # two gathers and a sum, for which the host waits
    more = (sharded - plain) * 1e6 - calls * found["link_us"]
    return {"unit_us": max(0.0, more) / 2 / LAYERS}


def calibrated(processes: int | None = None) -> tuple[Cluster, frozenset[str]]:
    """This machine's devices, and the names of the figures that were measured; the others are those of a similar device.

    Args:
        processes: by default one for each GPU, or two on the host.

    Raises ``AdviceError`` for more processes than GPUs, and if a process fails.
    """
    gpu = torch.cuda.is_available()
    there = torch.cuda.device_count() if gpu else 2
    number = processes or there
    if gpu and number > there:
        raise AdviceError(f"--processes {number}: this machine has {there} GPUs")
    found = _measured(number, gpu)
    known = known_devices()
    name = name_at_hand(gpu)
    similar = (
        known["CPU"] if not gpu else min(known.values(), key=lambda one: abs(one.memory_gib - found["memory_gib"]))
    )
    values = {one.name: getattr(similar, one.name) for one in fields(Device)} | found | {"name": name}
    return Cluster(1, number, Device(**values)), frozenset(found)


def _measured(number: int, gpu: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            spawn(measure_rank, args=(number, gpu, folder), nprocs=number)  # type: ignore[no-untyped-call]
        except ProcessException as error:
            lines = str(error).strip().splitlines()
            raise AdviceError(f"--calibrate: a process failed: {lines[-1] if lines else one_line(error)}") from error
        found: dict[str, Any] = json.loads((Path(folder) / "figures.json").read_text(encoding="utf-8"))
    return found


def entry_text(device: Device, measured: frozenset[str]) -> str:
    """A device as a section of a table of devices; behind each figure that was not measured stands that."""
    name = device.name if re.fullmatch(r"[A-Za-z0-9_-]+", device.name) else json.dumps(device.name)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {platform.platform()}"
    lines = [f"# Measured by `modular-plan advise --calibrate`: {versions}.", f"[{name}]"]
    for one in fields(Device):
        value = getattr(device, one.name)
        if one.name == "name":
            continue
        if isinstance(value, Mapping):
            text = f"{{ {', '.join(f'{key} = {speed:.4g}' for key, speed in value.items())} }}"
        else:
            text = f"{value:.4g}"
        lines.append(f"{one.name} = {text}{'' if one.name in measured else '  # not measured'}")
    return "\n".join(lines) + "\n"
