"""Devices and clusters as data: memory, speeds and links, from ``devices.toml`` or a file of the same form."""

from __future__ import annotations

import difflib
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from modular_converter.parallel.errors import AdviceError, one_line


TABLE = Path(__file__).with_name("devices.toml")
GIB = 2.0**30
_CLUSTER = re.compile(r"(?:(\d+)x)?(?:(\d+)x)?(.+)")


@dataclass(frozen=True)
class Device:
    """A device and its links; the meanings and units of the figures stand in ``devices.toml``."""

    name: str
    memory_gib: float
    bandwidth: float
    link: float
    peaks: Mapping[str, float]
    link_us: float
    network: float
    host_link: float
    context_gib: float
    group_gib: float
    workspace_mib: float
    rounding: float
    rounding_mib: float
    spare: float
    products: float
    attention: float
    masked: float
    moves: float
    kernel_us: float
    launch_us: float
    backward_us: float
    plain_us: float
    ranks_us: float
    token_us: float
    shared_us: float
    unit_us: float

    @property
    def memory(self) -> float:
        """Bytes that programs can use."""
        return self.memory_gib * GIB

    def peak(self, dtype: str) -> float:
        """Floating-point operations a second in this type, at best."""
        if dtype not in self.peaks:
            raise AdviceError(f"{self.name}: has no peak for {dtype}; known: {', '.join(self.peaks)}")
        return self.peaks[dtype] * 1e12


@dataclass(frozen=True)
class Cluster:
    """Equal devices in equal nodes."""

    nodes: int
    each: int
    device: Device

    @property
    def size(self) -> int:
        """The number of devices."""
        return self.nodes * self.each

    def __str__(self) -> str:
        return f"{self.nodes}x{self.each}x{self.device.name}" if self.nodes > 1 else f"{self.each}x{self.device.name}"


def known_devices(table: Path = TABLE) -> dict[str, Device]:
    """Name -> device. Raises ``AdviceError`` for a file that cannot be read or lacks a figure."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found = tomllib.loads(table.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise AdviceError(f"{table}: cannot be read: {one_line(error)}") from error
    usual = found.pop("defaults", {})
    return {name: _device(table, name, {**usual, **values}) for name, values in found.items()}


def _device(table: Path, name: str, values: dict[str, Any]) -> Device:
    wanted = {one.name for one in fields(Device)} - {"name"}
    if missing := sorted(wanted - values.keys()):
        raise AdviceError(f"{table}: [{name}] lacks {', '.join(missing)}; see {TABLE.name} for what they mean")
    if unknown := sorted(values.keys() - wanted):
        raise AdviceError(
            f"{table}: [{name}] has unknown figures {', '.join(unknown)}; known: {', '.join(sorted(wanted))}"
        )
    return Device(name, **values)


def cluster_of(text: str, table: Path | None = None) -> Cluster:
    """The cluster of a text: ``H100-80GB``, ``8xH100-80GB``, or ``2x8xH100-80GB`` (two nodes of eight).

    Args:
        table: a file of devices; the own one if None.

    Raises ``AdviceError`` with the nearest names for an unknown device.
    """
    match = _CLUSTER.fullmatch(text.strip())
    assert match is not None
    first, second, name = match.groups()
    known = known_devices() if table is None else {**known_devices(), **known_devices(table)}
    found = known.get(name) or next((one for key, one in known.items() if key.lower().startswith(name.lower())), None)
    if found is None or not name:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or list(known)
        raise AdviceError(
            f"--devices {text}: no device {name!r}; write one of {', '.join(near)}, such as 2x8x{near[0]}, or give a "
            "table of your own with --cluster"
        )
    nodes, each = (int(first), int(second)) if second else (1, int(first or 1))
    if nodes < 1 or each < 1:
        raise AdviceError(f"--devices {text}: give numbers of 1 or more")
    return Cluster(nodes, each, found)


def name_at_hand(gpu: bool) -> str:
    """The name under which a table has this machine's device: that of the GPU, or of the host's kind of processor."""
    import torch

    name = torch.cuda.get_device_name() if gpu else f"CPU {platform.machine()}"
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def cluster_at_hand(table: Path | None = None) -> Cluster:
    """The GPUs of this machine, as the caller's table has them, or the own one.

    Raises ``AdviceError`` if there are none, or of an unknown kind.
    """
    import torch

    if not torch.cuda.is_available():
        raise AdviceError("this machine has no GPU: say which devices you mean, such as --devices 8xH100-80GB")
    measured = known_devices(table).get(name_at_hand(True)) if table is not None else None
    cure = "measure it with --calibrate FILE, or give a table with --cluster"
    count = torch.cuda.device_count()
    return Cluster(1, count, measured or device_at_hand(True, count, cure))


def device_at_hand(gpu: bool, processes: int, cure: str) -> Device:
    """This process's GPU, or what one of so many processes has of the host.

    Args:
        cure: what the caller can do about a GPU that is in no table.

    Raises ``AdviceError`` with the cure for such a GPU.
    """
    import psutil
    import torch

    known = known_devices()
    if not gpu:
        return replace(known["CPU"], memory_gib=psutil.virtual_memory().available / processes / GIB)
    name, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    kinds = [one for key, one in known.items() if key.partition("-")[0].lower() in name.lower().replace(" ", "")]
    if not kinds:
        raise AdviceError(f"{name} is a GPU of which no figures are known: {cure}")
    near = min(kinds, key=lambda one: abs(one.memory - memory))
    return replace(near, memory_gib=memory / GIB)
