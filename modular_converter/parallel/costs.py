"""Count the work of a model at the size of its configuration, in a run on tensors without data.

Attention counts as a fused kernel does it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention.bias import CausalBias
from torch.utils.flop_counter import flop_registry

from modular_converter.parallel.choice.skeleton import Guesses
from modular_converter.parallel.errors import BuildError, PlanError, ScheduleError, one_line
from modular_converter.parallel.pipeline.chain import chain_of
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.schedule.stage_costs import ChainWork, PartWork
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.tiny.fields import check_fields, config_fields
from modular_converter.parallel.tiny.inputs import candidates, examples_of
from modular_converter.parallel.tiny.saved_config import class_for, nested_values, saved_config
from modular_converter.parallel.tiny.shrink import BATCH
from modular_converter.parallel.tiny.target import Target, is_type
from modular_converter.parallel.torch_private import DisableTorchFunction, TorchDispatchMode, storage_number
from modular_converter.parallel.trace.record import RunsWithoutData, attention_arguments, record, tensors_in


class FusedRun(Guesses):
    """A run without data counted as a GPU runs it: masks hide nothing, positions are consecutive, kernels are fused.

    So ``all(…)`` is true. Attention keeps no matrix of scores, and does half of the work if it is causal. Dropout keeps a byte
    for an entry; without its kernel, torch keeps an entry of the input's type.

    Args:
        count: called with the floating-point operations of each forward and of each backward of attention, and whether it has
            a mask other than the plain causal one.

    Attributes:
        attention_dropout: the largest rate that a call of attention has asked for.
    """

    def __init__(self, count: Callable[[float, bool], None]) -> None:
        super().__init__(finds_nothing=False)
        self.count = count
        self.attention_dropout = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return self._attention(attention_arguments(args, kwargs or {}))
        if func is torch.nn.functional.dropout:
            return _dropout(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name == "rms_norm" and args and args[0].is_meta and not torch.is_grad_enabled():
            return torch.empty_like(args[0])
        if name == "__bool__" and getattr(args[0], "_is_all", False):
            return True
        result = super().__torch_function__(func, types, args, kwargs)
        if name == "all" and isinstance(result, torch.Tensor) and result.is_meta:
            result._is_all = True  # type: ignore[attr-defined]
        return result

    def _attention(self, given: Mapping[str, Any]) -> torch.Tensor:
        query, key, value = given["query"], given["key"], given["value"]
        self.attention_dropout = max(self.attention_dropout, given["dropout_p"])
        rows = math.prod(query.shape[:-1])
        mask, seen = given["attn_mask"], 0.5 if given["is_causal"] else 1.0
        masked = mask is not None
        if isinstance(mask, CausalBias):
            seen, mask = 1 - query.shape[-2] / key.shape[-2] / 2, None
        pairs = rows * key.shape[-2] * seen
        flops = 2 * pairs * (query.shape[-1] + value.shape[-1])
        self.count(flops, masked)
        # Kernels take masks as numbers to add, which are kept for the backward.
        bias = None if mask is None or mask.dtype is query.dtype else mask.to(query.dtype)
        found: torch.Tensor = _Fused.apply(query, key, value, bias, self.count, flops, masked)  # type: ignore[no-untyped-call]
        return found


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """The parameters have the names of ``torch.nn.functional.dropout``."""
    if inplace or not training or not p:
        return torch.nn.functional.dropout(input, p, training, inplace)
    return torch.native_dropout(input, p, training)[0]


class _Fused(torch.autograd.Function):
    """The shapes of fused attention, and the tensors that it keeps: inputs, output, and a number for each row.

    The output has the order of its dimensions in memory from the query, as those of the kernels: where heads lie inside of
    positions, the model's code then joins them without a copy.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        count: Any,
        flops: float,
        masked: bool,
    ) -> torch.Tensor:
        last, strides = query.dim() - 1, query.stride()
        order = sorted(range(last), key=lambda n: -strides[n])  # outermost first
        shape = [query.shape[n] for n in order]
        back = [order.index(n) for n in range(last)]
        output = query.new_empty(*shape, value.shape[-1]).permute(*back, last)
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, sums, bias)
        ctx.count, ctx.flops, ctx.masked = count, flops, masked
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Gradients, beside a sum in float32 and, where query heads share keys, gradients for each query head."""
        query, key, value, _, sums, _ = ctx.saved_tensors
        ctx.count(2.5 * ctx.flops, ctx.masked)  # five products for two, of which one is computed again
        _wide = query.new_empty(query.shape, dtype=torch.float32), torch.empty_like(sums)
        _each = []
        if query.dim() > 3 and key.shape[-3] != query.shape[-3]:
            _each = [one.new_empty(*one.shape[:-3], query.shape[-3], *one.shape[-2:]) for one in (key, value)]
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None, None, None, None


MOST_OPERATIONS = 150_000
"""The limit for one run, about half a minute; models that loop over their tokens exceed it."""


def count_chain(model: torch.nn.Module, path: str, inputs: Mapping[str, Any]) -> ChainWork:
    """The work of one run: of its layers, and of the parts before and after them.

    Args:
        model: on the meta device; in train mode, the bytes that the forward keeps for its backward are counted.
        path: of the list of layers, which run in sequence.
        inputs: keyword arguments on the meta device: one micro-batch.

    Raises:
        BuildError: the forward fails on tensors without data.
        ScheduleError: weights of a layer are not used without data, so that its work is unknown; or the run has too many
            operations.
    """
    layers = list(model.get_submodule(path).children())
    counter = _Counter(model, layers)
    keeps = torch.autograd.graph.saved_tensors_hooks(counter.keep, lambda tensor: tensor)
    try:
        with (
            torch.set_grad_enabled(model.training),
            keeps,
            counter.hooks,
            FusedRun(counter.attention),
            NotedOperations(counter.operation),
        ):
            result = model(**inputs)
    except ScheduleError:
        raise
    except Exception as error:  # a model's own code may raise anything without data
        raise BuildError(
            f"{type(model).__name__}: its forward fails without data ({one_line(error)}); give a --length that it takes, or "
            "measured times with --layer-times"
        ) from error
    used = {key for key, places in counter.places.items() if places}
    if idle := idle_weight({f"{path}.{number}": layer for number, layer in enumerate(layers)}, used):
        raise ScheduleError(f"{idle}; give measured times with --layer-times")
    return replace(counter.work(model, path, layers), result=size_of(tensors_in(result)))


def idle_weight(layers: Mapping[str, torch.nn.Module], used: Container[int]) -> str:
    """Why the work of layers is not known: a matrix that a run without data has not taken. Empty if there is none.

    Args:
        layers: path -> layer, of those that ran.
        used: the numbers of the storages that operations took.
    """
    for path, layer in layers.items():
        for name, one in layer.named_parameters():
            if one.dim() > 1 and storage_number(one) not in used:
                return f"`{path}.{name}` does not run without data, so that the work of its layer is not known"
    return ""


def size_of(tensors: Iterable[torch.Tensor]) -> float:
    """The bytes of all entries."""
    return sum(float(one.numel() * one.element_size()) for one in tensors)


class _Counter:
    """Sums by place: 0 before the layers, ``i`` for the i-th layer and code between it and the next, the last after them."""

    def __init__(self, model: torch.nn.Module, layers: list[torch.nn.Module]) -> None:
        self.place, self.operations, self.output = 0, 0, 0.0
        sums = ([0.0] * (len(layers) + 2) for _ in range(5))
        self.weight_flops, self.other_flops, self.kept, self.weight_results, self.temporary = sums
        self.owner = {storage_number(p): p for p in model.parameters()}
        self.places: dict[int, set[int]] = {key: set() for key in self.owner}
        self.seen: dict[int, Any] = {storage_number(b): b for b in model.buffers()} | dict(self.owner)
        self.made: dict[int, float] = {}
        self.hooks = contextlib.ExitStack()
        for number, layer in enumerate(layers, start=1):
            entering = functools.partial(self._enter, number)
            self.hooks.enter_context(layer.register_forward_pre_hook(entering, with_kwargs=True))
            self.hooks.enter_context(layer.register_forward_hook(self._leave))

    def _enter(self, number: int, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A layer begins; the tensors that it takes from the layer before are those that stages hand over."""
        self.place = number
        taken = {storage_number(tensor) for tensor in tensors_in((args, kwargs))}
        self.output = max(self.output, sum(size for key, size in self.made.items() if key in taken))

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        self.place += self.place == len(self.kept) - 2
        self.made = {storage_number(one): size_of([one]) for one in tensors_in(result)}

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor that autograd keeps, once for each storage, without weights and buffers."""
        key = storage_number(tensor)
        if key not in self.seen:
            self.seen[key] = tensor  # alive, so that the numbers of storages are unique
            self.kept[self.place] += tensor.untyped_storage().nbytes()
        return tensor

    def operation(self, func: Any, flops: float, given: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Note the weights that an operation takes, its work, and the bytes of which the backward computes gradients."""
        used = [key for key in map(storage_number, given) if key in self.owner]
        for key in used:
            self.places[key].add(self.place)
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise ScheduleError(
                f"a run takes more than {MOST_OPERATIONS} operations: the model loops over its tokens; give a smaller "
                "--length, or measured times with --layer-times"
            )
        new = (one for one in results if used and storage_number(one) not in self.owner)  # no views of weights
        self.weight_results[self.place] += size_of(new)
        if func._overloadpacket is torch.ops.aten._log_softmax:
            self.temporary[self.place] = max(self.temporary[self.place], 2.0 * size_of(results))
        (self.weight_flops if used else self.other_flops)[self.place] += flops

    def attention(self, flops: float, masked: bool) -> None:
        """Note fused attention, which takes no weights."""
        self.other_flops[self.place] += flops

    def work(self, model: torch.nn.Module, path: str, layers: list[torch.nn.Module]) -> ChainWork:
        """The sums, with the number of parameters of each place; unused parameters count before the layers."""
        last = len(layers) + 1
        counts = [0] * (last + 1)
        shared = 0
        inside = {storage_number(p): i for i, layer in enumerate(layers, start=1) for p in layer.parameters()}
        for key, parameter in self.owner.items():
            ends = {place for place in self.places[key] if place in (0, last)}
            own = {inside[key]} if key in inside else ends or {0}
            for place in own:
                counts[place] += parameter.numel()
            shared += parameter.numel() if len(own) > 1 else 0
        sums = (self.weight_flops, self.other_flops, self.kept, counts, self.weight_results, self.temporary)
        before, *middle, after = map(PartWork, *sums)
        return ChainWork(type(model).__name__, path, tuple(middle), before, after, shared, self.output)


class NotedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that hands on each operation of torch.

    Args:
        note: called with an operation, its floating-point operations, the tensors that it takes, and its results.
    """

    def __init__(
        self,
        note: Callable[[Any, float, list[torch.Tensor], list[torch.Tensor]], None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = RunsWithoutData.known.result(func, args, kwargs)
        with DisableTorchFunction():  # else the modes of a run would see each question about a tensor below
            given = tensors_in((args, kwargs))
            self._note(func, flops_of(func, args, kwargs, result), given, tensors_in(result))
        return result


def flops_of(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> float:
    """The floating-point operations of one operation of torch, if it is a product."""
    packet = func._overloadpacket
    if "grouped_mm" in packet.__name__:
        first, second = args[:2]
        # Rows of several experts, each with its own matrix; for the gradients of the matrices each sums over its own rows.
        groups = result.shape[0] if first.dim() == second.dim() == 2 else 1
        return float(2 * result.numel() * first.shape[-1] / groups)
    return float(flop_registry[packet](*args, **kwargs, out_val=result)) if packet in flop_registry else 0.0


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


def chain_work(request: CountRequest) -> ChainWork:
    """The work of each layer of a model, and of the parts before and after the layers.

    Raises ``PlanError`` if the model is unknown, cannot be built, or is not a chain, or if its work cannot be counted
    without data.
    """
    model, path, inputs = model_at_size(request, torch.device("meta"))
    length = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    return replace(count_chain(model, path, inputs), length=length)


def model_at_size(request: CountRequest, device: torch.device) -> tuple[Any, str, dict[str, Any]]:
    """A model with the weights of its own initialization, the path of its list of layers, and random inputs of a micro-batch.

    The same in each call.

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
    return model, path, inputs_of(model, request, device)


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
            f"{request.model}: rows of {length} tokens are longer than the {most} positions of its configuration; give at most "
            f"{most}, or --set the field of its positions"
        )
    own = BATCH  # rows; a caller's example inputs have any number
    if examples_of(model) is not None:
        own = next((len(one) for one in found.values() if isinstance(one, torch.Tensor) and one.dim()), 1)
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
