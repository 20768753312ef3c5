"""The data dimensions of a layout and the options of training: recomputation, compilation, torch's ``fully_shard``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.kept_gathered import KeptGathered
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.proof.judge import HALF_TYPES
from modular_converter.parallel.shard.collectives import exchanged, same
from modular_converter.parallel.shard.layer_units import own_layers, recompute_layers
from modular_converter.parallel.tiny.fields import skips_layers
from modular_converter.parallel.training import Training


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
        _average(one, grid.data)
    reshard = options.reshard and grid.layout.dp_shard > 1
    units: dict[Any, bool] = {}
    for layer in layers:
        unit = fully_shard(layer, reshard_after_forward=reshard, ignored_params=single, **shared)
        units[unit] = reshard
        if any(isinstance(part, (torch.nn.ModuleList, torch.nn.ModuleDict)) for part in layer.modules()):
            # Data ranks may use different experts: the sums must include the gradients of unused ones.
            unit.set_reduce_scatter_unused_params(True)
    units[fully_shard(model, reshard_after_forward=False, ignored_params=single, **shared)] = False
    _keep_names(model)
    if not options.compile:  # compiled code has no second derivatives
        KeptGathered(model, units)


def _keep_names(model: Any) -> None:
    """Name the classes that ``fully_shard`` has made as the model's own: the library finds names of weights in files by them."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            made: Any = type(module)
            own = next(kind for kind in made.__mro__[1:] if kind is not FSDPModule)
            made.__name__, made.__qualname__, made.__module__ = own.__name__, own.__qualname__, own.__module__
            if hasattr(own, "__deepcopy__"):  # which says what to do instead
                del made.__deepcopy__


def refuse_options(model: Any, grid: ProcessGrid, training: Training | None) -> None:
    """Raise ``ApplyError`` for an option that the model or layout does not allow, before anything is changed."""
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


def refuse_tables(tables: Iterable[torch.nn.Embedding]) -> None:
    """Raise ``ApplyError`` for embeddings whose gradients or forwards need the whole batch, or weights that stay gathered."""
    for table in tables:
        for name in ("scale_grad_by_freq", "sparse", "max_norm"):
            if getattr(table, name):
                raise ApplyError(
                    f"{name}={getattr(table, name)} of an Embedding of {table.num_embeddings} rows: data ranks, which have parts "
                    "of the batch and of the weight, would compute others; set it to its default, or leave ddp and fsdp out"
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


def _average(parameter: Any, mesh: Any) -> None:
    """Average the gradient of a scalar parameter over data ranks: ``fully_shard`` takes no scalars."""
    groups = [mesh.get_group(dim) for dim in range(mesh.ndim)]
    size = mesh.size()

    def mean(tensor: torch.Tensor, groups: Any) -> torch.Tensor:
        local: torch.Tensor = tensor / size
        for group in groups:
            dist.all_reduce(local, group=group)
        return local

    def averaged(gradient: Any) -> Any:
        if not isinstance(gradient, DTensor):
            return exchanged(gradient, groups, mean, same)
        local = exchanged(gradient.to_local(), groups, mean, same)
        return DTensor.from_local(local, gradient.device_mesh, gradient.placements, run_check=False)

    trained = parameter.requires_grad
    parameter.requires_grad_(True)  # torch takes no hooks for a frozen parameter, which may be trained later
    parameter.register_hook(averaged)
    parameter.requires_grad_(trained)
