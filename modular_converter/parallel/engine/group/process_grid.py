"""The processes of a layout, as a mesh with a tensor dimension, data dimensions and stages; this process's device."""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from modular_converter.parallel.engine.inference.plain_forwards import DirectGroup
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.shard.collectives import ProcessGroup


@dataclass(frozen=True, eq=False)
class ProcessGrid:
    """The groups of processes over which weights and batches are divided.

    Attributes:
        group: of the tensor dimension.
        everyone: all processes that hold parts of the model.
        mesh: the tensor dimension, for DTensors; None if weights are plain parameters.
        data: the dimensions over which batches differ; None without them.
        layout: given, or equivalent to ``num_gpus`` or the caller's mesh.
        place: this process's device; weights may be on the host.
        stages: the processes that have the other stages; None without stages.
    """

    group: ProcessGroup
    everyone: ProcessGroup
    mesh: DeviceMesh | None
    data: DeviceMesh | None
    layout: Layout
    place: torch.device
    stages: dist.ProcessGroup | None = None

    @property
    def data_rank(self) -> int:
        """The index of this process's part of a batch."""
        if self.data is None:
            return 0
        found = 0
        for dim in range(self.data.ndim):
            found = found * self.data.size(dim) + self.data.get_local_rank(dim)
        return found


def process_grid(
    layout: Layout | None, mesh: Any, inference: bool, place: torch.device, always_data: bool = False
) -> ProcessGrid:
    """The grid of a layout, of a caller's mesh, or of all processes as one tensor dimension; all processes must call it.

    With a caller's mesh, weights are plain parameters: ``DistributedDataParallel``, which takes no DTensors, may run over
    another dimension of it.

    Args:
        always_data: make a data dimension also for one process.

    Raises ``ApplyError`` if the layout has another number of processes, or the mesh has several dimensions.
    """
    kind = DirectGroup if inference else ProcessGroup
    if mesh is not None:
        if mesh.ndim != 1:
            raise ApplyError(
                f"the mesh has {mesh.ndim} dimensions; give the dimension to shard over, such as mesh['tp']"
            )
        group = kind(mesh.get_group())
        return ProcessGrid(group, group, None, None, Layout(tp=group.size), place)
    layout = layout or Layout(tp=dist.get_world_size())
    layout.check(dist.get_world_size())
    if inference or layout.size == 1:
        group = kind(None)
        return ProcessGrid(group, group, None, None, layout, place)
    shares = "ep" if layout.ep > 1 else "tp"
    shape = {"dp_replicate": layout.dp_replicate, "dp_shard": layout.dp_shard, shares: layout.shares}
    has_data = layout.data > 1 or always_data
    if not has_data:
        shape = {shares: layout.shares}
    if layout.pp > 1:
        shape = {"pp": layout.pp, **shape}
    made = mesh_of(place.type, shape)
    tensor = made[shares]
    data = None
    if has_data:
        data = made["dp_replicate", "dp_shard"] if layout.dp_replicate > 1 else made["dp_shard"]
    mesh_of_tensors = tensor if layout.shares > 1 else None
    stages = made["pp"].get_group() if layout.pp > 1 else None
    everyone = ProcessGroup(None)
    return ProcessGrid(ProcessGroup(tensor.get_group()), everyone, mesh_of_tensors, data, layout, place, stages)


_MESHES: WeakKeyDictionary[dist.ProcessGroup, dict[Any, DeviceMesh]] = WeakKeyDictionary()
"""By the group of all processes, which a script may end and make anew."""


def mesh_of(kind: str, shape: dict[str, int]) -> DeviceMesh:
    """The mesh of named dimensions over all processes; all must call it.

    It is made once: the communicators of a group stay on the GPUs, 0.4 GB each, also when its models are gone.

    Args:
        kind: of the devices.
        shape: name -> processes of each dimension.
    """
    assert dist.group.WORLD is not None
    made = _MESHES.setdefault(dist.group.WORLD, {})
    key = (kind, *shape.items())
    if key not in made:
        made[key] = init_device_mesh(kind, tuple(shape.values()), mesh_dim_names=tuple(shape))
    return made[key]


def join_group(device: str | torch.device | None, offload: bool = False) -> torch.device:
    """This process's device; the process group is made if the script has not made one.

    Args:
        device: if None, the process's own GPU, or the CPU without GPUs.
        offload: whether weights are in the host's memory between steps.

    Raises ``ApplyError`` for ``offload`` if the script's group takes no CPU tensors.
    """
    gpu = torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda")
    place = torch.device(device or "cuda") if gpu else torch.device("cpu")
    if gpu:
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if place.index is None else place
        torch.cuda.set_device(place)
    if not dist.is_initialized():
        dist.init_process_group(("cpu:gloo,cuda:nccl" if offload else "nccl") if gpu else "gloo")
        if not gpu:
            atexit.register(_leave)
    if offload and "cpu" not in dist.get_backend_config():
        raise ApplyError(
            "offload=: the process group takes no CPU tensors; make it with 'cpu:gloo,cuda:nccl', or let parallelize do so"
        )
    return place


def _leave() -> None:
    """End the group before the interpreter ends: a thread of gloo that outlives it can crash the process.

    After an error the other processes may be in a collective, for which the end would wait.
    """
    if dist.is_initialized() and not hasattr(sys, "last_value"):
        _MESHES.clear()
        dist.destroy_process_group()
