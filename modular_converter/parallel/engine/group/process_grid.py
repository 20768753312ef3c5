"""The processes of a layout as a mesh, this process's device, and how a model runs over the data dimensions of the mesh.

The mesh has a tensor dimension, data dimensions, which torch's ``fully_shard`` runs, and stages. The options of training
are here, too: recomputation and compilation.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from modular_converter.parallel.choice.context_parallel import refuse_forms
from modular_converter.parallel.engine.arguments import Arguments
from modular_converter.parallel.engine.group.kept_gathered import KeptGathered, hook_gradient
from modular_converter.parallel.engine.group.same_calls import CallsOfAll, together
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.inference.plain_forwards import DirectGroup
from modular_converter.parallel.layout import Layout, Training
from modular_converter.parallel.modules import own_layers, recompute_layers
from modular_converter.parallel.proof.judge import HALF_TYPES
from modular_converter.parallel.shard.collectives import ProcessGroup, exchanged, same
from modular_converter.parallel.tiny.fields import skips_layers
from modular_converter.parallel.torch_private import whole_mesh


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
        context: the processes that have the other parts of a sequence; None without ``cp``.
    """

    group: ProcessGroup
    everyone: ProcessGroup
    mesh: DeviceMesh | None
    data: DeviceMesh | None
    layout: Layout
    place: torch.device
    stages: dist.ProcessGroup | None = None
    context: ProcessGroup | None = None

    @property
    def data_rank(self) -> int:
        """The index of this process's part of a batch."""
        if self.data is None:
            return 0
        found = 0
        for dim in range(self.data.ndim):
            found = found * self.data.size(dim) + self.data.get_local_rank(dim)
        return found // self.layout.cp


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
    shape = {"dp_replicate": layout.dp_replicate, "dp_shard": layout.shards, shares: layout.shares}
    has_data = layout.data * layout.cp > 1 or always_data
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
    context = None
    if layout.cp > 1:
        parts = {"data": layout.data, "cp": layout.cp, shares: layout.shares}
        dimension = made["dp_shard"] if layout.data == 1 else mesh_of(place.type, parts)["cp"]
        context = ProcessGroup(dimension.get_group())
    group, everyone = ProcessGroup(tensor.get_group()), ProcessGroup(None)
    return ProcessGrid(group, everyone, mesh_of_tensors, data, layout, place, stages, context)


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


def is_of_models(value: Any) -> bool:
    """Whether a value is a DTensor over a mesh of ours, or over dimensions of one.

    Results may have the mesh of earlier ones, which torch keeps with their placements: meshes that are equal are one.
    """
    return isinstance(value, DTensor) and any(
        whole_mesh(value.device_mesh) in one.values() for one in _MESHES.values()
    )


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


def begun_together(start: Callable[[Arguments], Any]) -> Callable[[Arguments], Any]:
    """``parallelize`` of the processes of a group: an error of one of them alone is told to those that wait for it."""

    @functools.wraps(start)
    def begun(given: Arguments) -> Any:
        join_group(given.device, given.training is not None and given.training.offload)
        group = given.mesh.get_group() if getattr(given.mesh, "ndim", 0) == 1 else None
        with together([CallsOfAll(dist.get_process_group_ranks(group))]):
            return start(given)

    return begun


def _leave() -> None:
    """End the group before the interpreter ends: a thread of gloo that outlives it can crash the process.

    After an error the other processes may be in a collective, for which the end would wait.
    """
    if dist.is_initialized() and not hasattr(sys, "last_value"):
        _MESHES.clear()
        dist.destroy_process_group()


def spread_over_data(model: Any, grid: ProcessGrid, training: Training | None) -> None:
    """Apply the options of training and the data dimensions of a layout to a model, in place.

    Replicas are a dimension of ``fully_shard``'s mesh: it keeps weights whole if the shard dimension has one process.
    """
    options = training or Training()
    layers = list(own_layers(model))
    if options.recompute:
        recompute_layers(model)
    if options.compile:
        for layer in layers:
            layer.compile()
    if grid.data is None:
        if options.computes_in is not None:
            _autocast(model, options.computes_in)
        return
    # Gradients are summed in the type of the weights, which is wider than the type of products.
    reduced = None if options.computes_in is None else next(model.parameters()).dtype
    policy = MixedPrecisionPolicy(param_dtype=options.computes_in, reduce_dtype=reduced)
    pinned = grid.place.type == "cuda"
    offload = CPUOffloadPolicy(pin_memory=pinned) if options.offload else OffloadPolicy()
    shared: dict[str, Any] = {"mesh": grid.data, "mp_policy": policy, "offload_policy": offload}
    single = {one for one in model.parameters() if one.dim() == 0}
    for one in single:
        _average(one, grid.data, grid.layout.data)
    reshard = options.reshard and grid.layout.shards > 1
    units: dict[Any, bool] = {}
    for layer in layers:
        unit = fully_shard(layer, reshard_after_forward=reshard, ignored_params=single, **shared)
        units[unit] = reshard
        if any(isinstance(part, (torch.nn.ModuleList, torch.nn.ModuleDict)) for part in layer.modules()):
            # Data ranks may use different experts: the sums must include the gradients of unused ones.
            unit.set_reduce_scatter_unused_params(True)
    units[fully_shard(model, reshard_after_forward=False, ignored_params=single, **shared)] = False
    if grid.layout.cp > 1:  # parts of one sequence, whose gradients are summed
        for one in units:
            one.set_gradient_divide_factor(grid.layout.data)
            one.set_force_sum_reduction_for_comms(True)  # gloo has no sums of products
    _keep_names(model)
    type(model).unshard = _refuse_whole
    KeptGathered(model, units, grid.everyone, options.compile, grid.stages is not None)


def _refuse_whole(model: Any, *args: Any, **kwargs: Any) -> Any:
    """``unshard`` of a whole model, where that of `fully_shard` would gather its own weights until the next forward, and return None."""
    raise ApplyError(
        "unshard() does not go with data ranks (ddp, fsdp, cp): make the model anew, give it the result of full_state_dict(), change "
        "it, and parallelize it again"
    )


def _keep_names(model: Any) -> None:
    """Name the classes that ``fully_shard`` has made as the model's own: the library finds names of weights in files by them."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            made: Any = type(module)
            own = next(kind for kind in made.__mro__[1:] if kind is not FSDPModule)
            made.__name__, made.__qualname__, made.__module__ = own.__name__, own.__qualname__, own.__module__
            if hasattr(own, "__deepcopy__"):  # which says what to do instead
                del made.__deepcopy__


def refuse_options(
    model: Any, grid: ProcessGrid, training: Training | None, types: Callable[[str, torch.Tensor], torch.dtype]
) -> None:
    """Raise ``ApplyError`` for an option that the model or layout does not allow, before anything is changed.

    Args:
        types: from a weight's name and value to its type on the devices.
    """
    options = training or Training()
    if options.recompute and options.compile and grid.layout.shares > 1:
        raise ApplyError(
            "recompute and compile together need whole layers, as in fsdp4: compiled code cannot recompute with DTensors"
        )
    if grid.layout.pp == 1 and (options.chunks is not None or options.schedule != "1F1B" or options.loss is not None):
        raise ApplyError(
            f"chunks=, schedule= and loss= are for stages: take a layout with pp, or leave them out of {grid.layout}"
        )
    _refuse_sequence(options, grid)
    if grid.context is not None:
        refuse_forms(model)
        if options.compile or options.sequence_parallel:
            raise ApplyError("cp goes neither with compile= nor with sequence_parallel= yet: leave one of them out")
    if options.recompute and not getattr(model, "supports_gradient_checkpointing", False):
        raise ApplyError(f"recompute: {type(model).__name__} has no gradient checkpointing; leave it out")
    if grid.data is None:
        if options.offload:
            raise ApplyError(f"offload= needs a layout with fsdp, such as fsdp2; this one is {grid.layout}")
        if options.computes_in not in (None, *HALF_TYPES):  # torch.autocast has no other types
            raise ApplyError(
                f"compute_type={options.computes_in} needs a layout with data ranks, such as fsdp2; with {grid.layout} give "
                "torch.bfloat16, or convert the model before"
            )
        return
    holders = [holder for module in model.modules() for holder in (module, getattr(module, "config", None))]
    for name, rate in (one for holder in holders for one in getattr(holder, "__dict__", {}).items()):
        if skips_layers(name, rate) and rate:
            raise ApplyError(
                f"{name}={rate}: data ranks would skip different layers, and sums between them would be of different "
                "weights; set it to 0"
            )
    if grid.data is not None and grid.stages is None:
        _refuse_several_types(model, types)


def _refuse_several_types(model: Any, types: Callable[[str, torch.Tensor], torch.dtype]) -> None:
    """Raise ``ApplyError`` for a unit of ``fully_shard`` whose gradients, summed in one tensor, have several types."""
    inside = {id(one): number for number, layer in enumerate(own_layers(model)) for one in layer.parameters()}
    found: dict[int, dict[torch.dtype, str]] = {}
    for name, one in model.named_parameters():
        if one.requires_grad and one.dim():
            found.setdefault(inside.get(id(one), -1), {}).setdefault(types(name, one), name)
    for named in found.values():
        if len(named) > 1:
            said = " and ".join(f"{name} ({str(kind).removeprefix('torch.')})" for kind, name in named.items())
            raise ApplyError(
                f"{said}: data ranks sum the gradients of these weights in one tensor, which has one type: convert the model to one, "
                "or take a layout without ddp, fsdp and cp, such as tp2"
            )


def refuse_tables(tables: Iterable[torch.nn.Embedding]) -> None:
    """Raise ``ApplyError`` for embeddings whose gradients or forwards need the whole batch, or weights that stay gathered."""
    for table in tables:
        for name in ("scale_grad_by_freq", "sparse", "max_norm"):
            if getattr(table, name):
                raise ApplyError(
                    f"{name}={getattr(table, name)} of an Embedding of {table.num_embeddings} rows: data ranks, which have parts "
                    "of the batch and of the weight, would compute others; set it to its default, or leave ddp and fsdp out"
                )


def refuse_sparse(tables: Iterable[torch.nn.Embedding]) -> None:
    """Raise ``ApplyError`` for sparse gradients of tables that processes of the tensor dimension hold as DTensors."""
    for table in tables:
        if table.sparse and isinstance(table._parameters.get("weight"), DTensor):
            raise ApplyError(
                f"sparse=True of an Embedding of {table.num_embeddings} rows: processes hold its weight as a DTensor, of which "
                "torch makes no sparse gradients; set it to False"
            )


def _refuse_sequence(options: Training, grid: ProcessGrid) -> None:
    if not options.sequence_parallel:
        return
    if grid.layout.tp == 1 or grid.layout.pp > 1:
        raise ApplyError(
            f"sequence_parallel= needs a layout with tp and without pp, such as tp2; this one is {grid.layout}"
        )
    if options.compile:
        raise ApplyError("sequence_parallel= and compile= do not go together yet: leave one of them out")


def _autocast(model: Any, kind: torch.dtype) -> None:
    made: Any = type(model)  # for this model only; `unshard` removes it
    own: Callable[..., Any] = made.forward
    device = next(model.parameters()).device.type

    @functools.wraps(own)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, kind):
            return own(self, *args, **kwargs)

    made.forward = forward


def mean_over(mesh: DeviceMesh, size: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of a gradient of this process: the sum over the processes of a mesh, divided by ``size``."""
    groups = [mesh.get_group(dim) for dim in range(mesh.ndim)]

    def mean(tensor: torch.Tensor, groups: Any) -> torch.Tensor:
        local: torch.Tensor = tensor / size
        for group in groups:
            dist.all_reduce(local, group=group)
        return local

    return lambda gradient: exchanged(gradient, groups, mean, same)


def _average(parameter: Any, mesh: Any, size: int) -> None:
    """Average the gradient of a scalar parameter over parts of a batch: ``fully_shard`` takes no scalars."""
    mean = mean_over(mesh, size)

    def averaged(gradient: Any) -> Any:
        if not isinstance(gradient, DTensor):
            return mean(gradient)
        return DTensor.from_local(
            mean(gradient.to_local()), gradient.device_mesh, gradient.placements, run_check=False
        )

    hook_gradient(parameter, averaged)
