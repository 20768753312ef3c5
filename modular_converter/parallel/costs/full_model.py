"""A model at the size of its configuration: its class, its list of layers, its inputs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from modular_converter.parallel.costs.model_costs import count_chain
from modular_converter.parallel.errors import BuildError, PlanError, ScheduleError, one_line
from modular_converter.parallel.pipeline.chain import chain_of
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.schedule.stage_costs import ChainWork
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.tiny.fields import check_fields, config_fields
from modular_converter.parallel.tiny.inputs import candidates, examples_of
from modular_converter.parallel.tiny.saved_config import class_for, nested_values, saved_config
from modular_converter.parallel.tiny.shrink import BATCH
from modular_converter.parallel.tiny.target import Target, is_type
from modular_converter.parallel.trace.record import record


LENGTH = 2048
SEED = 0


@dataclass(frozen=True)
class CountRequest:
    """The model and the inputs to count.

    Attributes:
        model: a model type, class path, modeling file, or a folder or file with a configuration.
        overrides: configuration values.
        layers: the number of layers; the configuration's if None.
        samples: the number of rows of a micro-batch.
        length: the number of tokens of a row, for models that take ids; if None, the number of positions, at most 2048.
        trains: whether to count training: the loss, if the model has one, and the tensors kept for the backward.
        dtype: of weights and inputs.
    """

    model: str
    overrides: Mapping[str, Any]
    layers: int | None
    samples: int
    length: int | None
    trains: bool = True
    dtype: str = "bfloat16"


class FullModel(NamedTuple):
    """A model of the requested size, the path of its list of layers, and inputs of one micro-batch."""

    model: Any
    path: str
    inputs: dict[str, Any]


def chain_work(request: CountRequest) -> ChainWork:
    """The work of each layer of a model, and of the parts before and after the layers.

    Raises ``PlanError`` if the model is unknown, cannot be built, or is not a chain, or if its work cannot be counted
    without data.
    """
    model, path, inputs = model_at_size(request, torch.device("meta"))
    length = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    return replace(count_chain(model, path, inputs), length=length)


def model_at_size(request: CountRequest, device: torch.device) -> FullModel:
    """A model with the weights of its own initialization, the same in each call, and random inputs.

    Raises ``PlanError`` if the model is unknown, cannot be built, or is not a chain.
    """
    target, config = target_and_config(request)
    path = _layers_of(target)
    model = model_of(target, config, request, device)
    found = len(list(model.get_submodule(path).children()))
    if request.layers is not None and found != request.layers:
        raise ScheduleError(
            f"{request.model}: `{path}` has {found} layers, not {request.layers}; give the field that sets their number "
            "with --set, such as --set text_config.num_hidden_layers=8"
        )
    return FullModel(model, path, inputs_of(model, request, device))


def target_and_config(request: CountRequest) -> tuple[Target, Any]:
    """The requested class and configuration; the class with a language-model head if the type has one."""
    place = Path(request.model)
    saved = place / "config.json" if place.is_dir() else place
    if saved.suffix == ".json" and not is_type(request.model):
        return _from_file(saved, request)
    try:
        target = target_of(request.model, "causal", saved=True)
    except BuildError:
        target = target_of(request.model)
    _, kind = target.load()
    layers = {} if request.layers is None else {_layer_field(kind): request.layers}
    overrides = {**request.overrides, **layers}
    check_fields(kind, list(overrides))
    try:
        return target, kind(**nested_values(overrides))
    except Exception as error:  # a configuration's own checks may raise anything
        raise BuildError(f"{request.model}: its configuration refuses these values: {one_line(error)}") from error


def _layer_field(kind: Any) -> str:
    """The field of a configuration class that holds the number of layers."""
    name = str(getattr(kind, "attribute_map", {}).get("num_hidden_layers", "num_hidden_layers"))
    known = {field.name for field in config_fields(kind)}
    return "text_config.num_hidden_layers" if name not in known and "text_config" in known else name


def _from_file(path: Path, request: CountRequest) -> tuple[Target, Any]:
    config = saved_config(path, request.overrides)
    if request.layers is not None:
        config = saved_config(path, {**request.overrides, _layer_field(type(config)): request.layers})
    kind = class_for(config, path)
    model_class, config_class = (f"{found.__module__}.{found.__qualname__}" for found in (kind, type(config)))
    return Target(str(path), model_class, config_class), config


def _layers_of(target: Target) -> str:
    """The path of the list of layers that run in sequence, from the trace of a small instance."""
    small = build(target)
    chain = chain_of(record(small.model, with_mask(small.model, small.inputs), target.name))
    if isinstance(chain, str):
        raise ScheduleError(f"{target.name}: has no chain of layers: {chain}; give measured times with --layer-times")
    return chain.groups[chain.layers].key


def model_of(target: Target, config: Any, request: CountRequest, device: torch.device) -> torch.nn.Module:
    kind, _ = target.load()
    drawing = [device] if device.type == "cuda" else []  # by default all GPUs, which opens each
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(drawing), device:
            warnings.simplefilter("ignore")
            torch.manual_seed(SEED)
            model: torch.nn.Module = kind(config).to(getattr(torch, request.dtype))
    except PlanError:
        raise
    except Exception as error:  # a model's own code may read values
        without = " without data" if device.type == "meta" else ""
        raise BuildError(f"{request.model}: cannot be made{without}: {one_line(error)}") from error
    return model.train(request.trains)


def inputs_of(model: Any, request: CountRequest, device: torch.device) -> dict[str, Any]:
    """Inputs of one micro-batch: ids of the requested length, other tensors of the model's own sizes."""
    found = next(candidates(model, text_alone=True), None) or next(candidates(model), None)
    if found is None:
        raise BuildError(f"{request.model}: no inputs are known for it; give measured times with --layer-times")
    most = _positions(getattr(model, "config", None))
    length = request.length or min(most or LENGTH, LENGTH)
    if most is not None and length > most:
        raise ScheduleError(
            f"{request.model}: rows of {length} tokens are longer than the {most} positions of its configuration; give "
            f"--length {most} or less, or --set the field of its positions"
        )
    own = _rows_of(found) if examples_of(model) is not None else BATCH
    inputs = {
        name: _sized(name, value, request, length, own).to(device) if isinstance(value, torch.Tensor) else value
        for name, value in found.items()
    }
    if request.trains and _predicts_inputs(model, inputs):
        inputs["labels"] = inputs["input_ids"]
    return inputs


def _predicts_inputs(model: Any, inputs: dict[str, Any]) -> bool:
    """Whether the model has a loss of its own of the tokens that it is given."""
    if "input_ids" not in inputs or "decoder_input_ids" in inputs or not hasattr(model, "get_output_embeddings"):
        return False
    return "labels" in inspect.signature(model.forward).parameters and model.get_output_embeddings() is not None


def _positions(config: Any) -> int | None:
    """The number of positions, if a configuration has it."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    found = getattr(text, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def _rows_of(inputs: dict[str, Any]) -> int:
    """The rows of a caller's example inputs."""
    return next((len(one) for one in inputs.values() if isinstance(one, torch.Tensor) and one.dim()), 1)


def _sized(name: str, value: torch.Tensor, request: CountRequest, length: int, own: int) -> torch.Tensor:
    """The value repeated to the number of rows, and ids also to the length."""
    if not value.dim():
        return value
    rows = value.shape[0] // own * request.samples
    is_text = name.endswith("input_ids") and value.dim() == 2
    wanted = (rows, length) if is_text else (rows, *value.shape[1:])
    times = [-(-new // old) if old else 1 for new, old in zip(wanted, value.shape)]
    found = value.repeat(times)[tuple(slice(size) for size in wanted)]
    return found.to(getattr(torch, request.dtype)) if value.is_floating_point() else found
