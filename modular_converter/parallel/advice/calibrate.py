"""The machine at hand as an entry of a table of devices, measured by processes of its own."""

from __future__ import annotations

import json
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessException, spawn

from modular_converter.parallel.advice.devices import Cluster, Device, known_devices, name_at_hand
from modular_converter.parallel.errors import AdviceError, one_line


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
    from modular_converter.parallel.advice.machine import measure_rank

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
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {platform.platform()}"
    lines = [f"# Measured by `modular-plan advise --calibrate`: {versions}.", f"[{_key(device.name)}]"]
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


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
