"""Build a small model of a type or class, seeded, on the CPU, and inputs for one forward; copies, of which one proof takes dozens."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cache
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import torch

from modular_converter.parallel.errors import BuildError, one_line
from modular_converter.parallel.int8 import Int8Linear
from modular_converter.parallel.tiny.fields import check_fields, configs_within, dropout_rates, explained
from modular_converter.parallel.tiny.inputs import candidates
from modular_converter.parallel.tiny.shrink import STRATEGIES, shrink
from modular_converter.parallel.tiny.target import Target, target_of, targets_of_folder
from modular_converter.parallel.torch_private import ConvNd
from modular_converter.parallel.trace.record import forward_names
from modular_converter.parallel.trace.unchanged import unchanged


__all__ = ["Small", "Target", "build", "target_of", "targets_of_folder"]
SEED = 7
MOST_PARAMETERS = 3e7


@dataclasses.dataclass(frozen=True)
class Small:
    """A small model in eval mode with its inputs.

    Attributes:
        name: the model type or class path of its target.
        strategy: of shrinking.
        inputs: keyword arguments for one forward.
    """

    name: str
    strategy: str
    model: torch.nn.Module
    inputs: dict[str, Any]


def build(target: Target, overrides: Mapping[str, Any] | None = None, strategy: str | None = None) -> Small:
    """A small model that ran one forward.

    Args:
        overrides: configuration values that take precedence over the rules and the table.
        strategy: of shrinking; None for the first that works.

    Raises ``BuildError`` if no strategy gives a model that runs; the message has the reason of each strategy.
    """
    model_class, config_class = target.load()
    check_fields(config_class, list(overrides or {}), model_class)
    reasons = []
    for text_alone in (False, True):
        for kind in [strategy] if strategy else STRATEGIES:
            try:
                return _attempt(target, kind, overrides or {}, text_alone)
            except Exception as error:  # a model's own code may raise anything
                reasons += [] if text_alone else [(kind, one_line(error, 200))]
    raise BuildError(f"{target.name}: cannot be built small and run{explained(reasons, config_class)}")


def _attempt(target: Target, strategy: str, overrides: Mapping[str, Any], text_alone: bool) -> Small:
    model = fresh(target, overrides, strategy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Small(target.name, strategy, model, _inputs_that_run(model, text_alone))


def fresh(target: Target, overrides: Mapping[str, Any], strategy: str) -> torch.nn.Module:
    """The model of a small instance before its first forward, which may change its attributes.

    Raises the exceptions of the model's own constructor.
    """
    model_class, config_class = target.load()
    config = shrink(config_class, strategy, overrides)
    with warnings.catch_warnings(), _limited():
        warnings.simplefilter("ignore")
        with contextlib.suppress(RuntimeError, NotImplementedError), torch.device("meta"):  # its code may read values
            model_class(config)
    seed_cpu(SEED)
    with warnings.catch_warnings(), _limited():
        warnings.simplefilter("ignore")
        model: torch.nn.Module = model_class(config).eval()
        for alteration in target.alterations:
            alteration.apply_to(model)
        randomise(model)
        return model


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """A context that refuses a model with too many parameters during its construction."""
    sizes: dict[int, int] = {}

    def count(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        sizes[id(parameter)] = parameter.numel() if parameter is not None else 0
        if sum(sizes.values()) > MOST_PARAMETERS:
            raise BuildError(f"more than {MOST_PARAMETERS / 1e6:.0f} M parameters; give smaller widths")

    with torch.nn.modules.module.register_module_parameter_registration_hook(count):
        yield


def _inputs_that_run(model: torch.nn.Module, text_alone: bool) -> dict[str, Any]:
    """The first inputs with which the forward runs. Raises its exception for the likeliest inputs."""
    refusal: Exception | None = None
    for inputs in candidates(model, text_alone=text_alone):
        try:
            with unchanged(model), torch.no_grad():
                model(**inputs)
        except Exception as error:  # not the model's layout; the first exception is reported, of the likeliest layout
            refusal = refusal or error
        else:
            return inputs
    if refusal is not None and not forward_names(model):
        raise BuildError(
            "its forward takes *args and **kwargs alone, so nothing says what its inputs are: write their names, as in "
            "def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs)"
        )
    raise refusal or BuildError("its towers take none of the known layouts of images or audio")


def randomise(model: torch.nn.Module, seed: int = SEED) -> None:
    """Draw weights of a size that keeps every layer's effect visible: zeros and tiny weights would hide a wrong plan.

    No layer makes its input much larger: over many layers, numbers would overflow or saturate later functions. Buffers
    that a checkpoint fills are changed too, and keep their signs.
    """
    generator = torch.Generator().manual_seed(seed)
    convolutions = [module for module in model.modules() if isinstance(module, ConvNd)]
    terms = {id(module._parameters.get("weight")): _terms(module) for module in convolutions}
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point():
                continue
            if parameter.dim() < 2:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
            else:
                scale = 1.0 / max(terms.get(id(parameter), parameter.shape[-1]), 1) ** 0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        for module in model.modules():
            if isinstance(module, Int8Linear):
                module.draw(generator)
        for buffer in _filled_by_checkpoints(model):
            noise = torch.randn(buffer.shape, generator=generator).to(buffer.dtype) * 0.1
            buffer.copy_(buffer * noise.exp() if bool(buffer.any()) else noise)


def _terms(module: ConvNd) -> int:
    """The number of products in one entry of a convolution's output."""
    window = math.prod(module.kernel_size)
    if module.transposed:
        window = max(window // math.prod(module.stride), 1)
    return module.in_channels // module.groups * window


def _filled_by_checkpoints(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The saved floating buffers, without masks of zeros and ones, and without single numbers, which are switches."""
    seen: set[int] = set()
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name in module._non_persistent_buffers_set or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            is_mask = bool(((buffer == 0) | (buffer == 1)).all()) and bool(buffer.any()) and not bool(buffer.all())
            if buffer.is_floating_point() and buffer.numel() > 1 and not is_mask:
                yield buffer


_Model = TypeVar("_Model", bound=torch.nn.Module)
_Copies = dict[int, Any]
# Types whose values need no copy.
_SHARED = {type(None), bool, int, float, complex, str, bytes, type, FunctionType, BuiltinFunctionType, torch.dtype}
_MAPPINGS = {dict, OrderedDict}
# The methods with which a class can change its copies.
_OWN_WAYS = ("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__new__")


def copy_for_training(model: _Model) -> _Model:
    """A copy in train mode without dropout in modules and configurations, which would drop different entries on ranks."""
    found = copy_of(model).train()
    for module in found.modules():
        for holder in (
            module,
            *(one for _, one in configs_within(module.__dict__.get("config")) if hasattr(one, "to_dict")),
        ):
            for name in dropout_rates(holder):
                setattr(holder, name, 0.0)
    return found


def copy_of(model: _Model) -> _Model:
    """The same as `copy.deepcopy`, in half of its time for a small model.

    `copy` searches for each value's way of copying. Nearly all values of a model are modules without a way of their own,
    plain dictionaries (mostly empty ones, for hooks), and numbers.

    Raises ``BuildError`` if an object in it cannot be copied, such as a lock, an open file or a running generator.
    """
    try:
        made: _Model = _copied(model, {})
    except TypeError as error:
        raise BuildError(f"{type(model).__name__} cannot be copied: {one_line(error)}") from error
    return made


def _copied(value: Any, known: _Copies) -> Any:
    """The copy of a value; ``known`` has the copies so far, by ``id`` of the original, as `copy` does."""
    kind: Any = type(value)
    if kind in _SHARED:
        return value
    found = known.get(id(value))
    if found is not None:
        return found
    made: Any
    if kind is set and not value:
        made = known[id(value)] = set()
    elif kind in _MAPPINGS:
        made = known[id(value)] = kind()
        _fill(made, value, known)
    elif _is_plain_module(kind):
        made = known[id(value)] = object.__new__(kind)
        made.__setstate__(_fill({}, vars(value), known))
    else:
        made = copy.deepcopy(value, known)
    return made


def _fill(made: dict[Any, Any], values: dict[Any, Any], known: _Copies) -> dict[Any, Any]:
    for name, value in values.items():
        key = name if type(name) is str else _copied(name, known)
        made[key] = value if type(value) in _SHARED else _copied(value, known)
    return made


@cache
def _is_plain_module(kind: type) -> bool:
    """Whether `copy` would copy a module of this class by copying its attributes."""
    if not issubclass(kind, torch.nn.Module) or any(vars(base).get("__slots__") for base in kind.__mro__):
        return False
    return all(getattr(kind, name, None) is getattr(torch.nn.Module, name, None) for name in _OWN_WAYS)


def seed_cpu(seed: int) -> None:
    """Seed the CPU's generator alone: ``torch.manual_seed`` would overwrite the random state of the caller's GPUs."""
    torch.default_generator.manual_seed(seed)
