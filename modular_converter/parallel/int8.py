"""Layers with weights of 8 bits: plain parameters that can be cut, and torchao's form of them."""

from __future__ import annotations

import math
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.text_checks import SomeLayers


_LARGEST = 127


class Int8Linear(torch.nn.Module):
    """``x @ weight.T * scale + bias``, in the type of ``x`` and in the same steps as torchao.

    Inputs of integers are refused: code that converts its input to ``weight.dtype`` means the type before int8.

    Attributes:
        weight: int8, ``[out_features, in_features]``.
        scale: floating, ``[out_features]``.
        bias: ``[out_features]``, or None.
    """

    weight: torch.nn.Parameter
    scale: torch.nn.Parameter
    bias: torch.nn.Parameter | None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.finished(self.product(input, self.weight), input)

    @staticmethod
    def product(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The product with the integers, ``[rows, out_features]``: a sum over input features, which ranks can share."""
        if not input.is_floating_point():
            raise ApplyError(
                f"an int8 layer got an input of {input.dtype}: the model's code gives its input the type of a weight, which "
                "is int8 here; leave this layer out of the quantisation"
            )
        return torch.mm(input.reshape(-1, input.shape[-1]), weight.t().to(input.dtype))

    def finished(self, product: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
        """The output of the layer, from the whole product."""
        found = (product * self.scale.to(product.dtype)).reshape(*input.shape[:-1], product.shape[-1])
        return (found if self.bias is None else found + self.bias).to(input.dtype)

    def draw(self, generator: torch.Generator) -> None:
        """Draw random weights, whose floating values are of the size ``1 / sqrt(in_features)``."""
        with torch.no_grad():
            self.weight.copy_(torch.randint(-_LARGEST, _LARGEST + 1, self.weight.shape, generator=generator))
            sizes = torch.rand(self.scale.shape, generator=generator) + 0.5
            self.scale.copy_(sizes * 1.7 / _LARGEST / self.weight.shape[1] ** 0.5)


def become_int8(module: torch.nn.Module, weight: torch.Tensor, scale: torch.Tensor) -> None:
    """Turn a linear layer into an ``Int8Linear`` in place, with its bias unchanged.

    Args:
        weight: int8, ``[out_features, in_features]``.
        scale: ``[out_features]``.
    """
    bias = module._parameters["bias"]
    module.__class__ = Int8Linear
    module._parameters.clear()
    for name, value in (("weight", weight), ("scale", scale)):
        module._parameters[name] = torch.nn.Parameter(value, requires_grad=False)
    module._parameters["bias"] = bias


SCHEME = "torchao"


@dataclass(frozen=True)
class _Form:
    """The original form of a layer: its class, the attributes that the library has set on it, and its weight's form.

    Attributes:
        tensor: torchao's class of the weight.
        settings: the arguments of this class, beside integers and scales.
        scale_shape: the shape of torchao's scales.
    """

    kind: type[torch.nn.Module]
    attributes: dict[str, Any]
    tensor: type[torch.Tensor]
    settings: dict[str, Any]
    scale_shape: tuple[int, ...]

    def packed(self, weight: torch.Tensor, scale: torch.Tensor) -> Any:
        """The weight in torchao's form."""
        own = scale[: math.prod(self.scale_shape)].reshape(self.scale_shape)  # all rows may share one scale
        return self.tensor(weight, own, **self.settings)


# Not kept in the modules, since the attributes that the library sets cannot be sent to other processes.
_FORMS: weakref.WeakKeyDictionary[torch.nn.Module, _Form] = weakref.WeakKeyDictionary()
# The attribute that torchao may set on a layer: the text that `print` shows.
_OWN = ("extra_repr",)


@dataclass(frozen=True)
class Int8Layers:
    """The layers of a model with int8 weights, to be repeated in a small instance."""

    layers: SomeLayers

    def apply_to(self, model: torch.nn.Module) -> None:
        """Turn the same layers of a small instance into ``Int8Linear``; their numbers are drawn later."""
        for path in self.layers.same_in(model):
            module = model.get_submodule(path)
            if type(module) is torch.nn.Linear:
                empty = torch.zeros(module.weight.shape, dtype=torch.int8)
                become_int8(module, empty, torch.ones(empty.shape[0]))


def int8_layers_of(model: torch.nn.Module) -> Int8Layers | None:
    """The layers of a model that are ``Int8Linear``; None if there are none."""
    found = tuple(path for path, module in model.named_modules() if isinstance(module, Int8Linear))
    return Int8Layers(SomeLayers.of(found, model)) if found else None


def unpack_layers(model: torch.nn.Module) -> None:
    """Turn the quantised layers of a model into ``Int8Linear`` in place, without copying the integers.

    Raises ``ApplyError`` if a weight is quantised in another way; the model is then unchanged.
    """
    if SCHEME not in sys.modules:
        return
    found: list[tuple[str, Any]] = [(name, one) for name, one in model.named_parameters() if _is_of_torchao(one)]
    forms = [
        (model.get_submodule(name.rpartition(".")[0]), weight, _form(model, name, weight)) for name, weight in found
    ]
    for module, weight, form in forms:
        for name in form.attributes:
            del module.__dict__[name]
        become_int8(module, weight.qdata, weight.scale.reshape(-1).expand(weight.shape[0]).contiguous())
        _FORMS[module] = form


def pack_layers(model: torch.nn.Module) -> None:
    """Undo ``unpack_layers``."""
    for module in model.modules():
        if isinstance(module, Int8Linear) and module in _FORMS:
            form, bias = _FORMS.pop(module), module._parameters["bias"]
            weight = form.packed(module.weight.data, module.scale.data)
            module.__class__ = form.kind  # type: ignore[assignment]
            module._parameters.clear()
            module._parameters.update(weight=torch.nn.Parameter(weight, requires_grad=False), bias=bias)
            module.__dict__.update(form.attributes)


def is_unpacked(model: torch.nn.Module) -> bool:
    """Whether a model has layers that ``unpack_layers`` has changed."""
    return any(isinstance(module, Int8Linear) and module in _FORMS for module in model.modules())


def packed_state(model: torch.nn.Module, state: dict[str, torch.Tensor], prefix: str = "") -> None:
    """Convert the weights of a state dict with ``Int8Linear`` layers into torchao's form, in place.

    Args:
        prefix: of the model's names in the state.
    """
    for path, module in model.named_modules():
        if isinstance(module, Int8Linear) and module in _FORMS:
            name = f"{prefix}{path}."
            state[f"{name}weight"] = _FORMS[module].packed(state[f"{name}weight"], state.pop(f"{name}scale"))


def _is_of_torchao(weight: Any) -> bool:
    return type(weight).__module__.partition(".")[0] == SCHEME or type(weight.data).__module__.startswith(f"{SCHEME}.")


def _form(model: torch.nn.Module, name: str, weight: Any) -> _Form:
    from torchao.quantization import Int8Tensor  # takes seconds to import; the model has it already

    path, _, leaf = name.rpartition(".")
    module = model.get_submodule(path)
    reason = ""
    if type(module) is not torch.nn.Linear or leaf != "weight":
        reason = f"it is a weight of {type(module).__name__}"
    elif type(weight) is not Int8Tensor:
        reason = f"it is of the type {type(weight).__name__}"
    elif weight.act_quant_kwargs is not None or weight.act_pre_scale is not None:
        reason = "its inputs are quantised or scaled, too"
    elif list(weight.block_size) not in ([1, weight.shape[1]], list(weight.shape)):
        reason = f"it has scales for blocks of {' x '.join(map(str, weight.block_size))} entries"
    elif weight.zero_point is not None and bool(weight.zero_point.any()):
        reason = "it has zero points"
    if reason:
        raise ApplyError(
            f"{name}: its weights are quantised ({SCHEME}) in a way that a plan does not cut: {reason}; supported is "
            "TorchAoConfig(Int8WeightOnlyConfig()) with one scale a row, or load the weights from before they were "
            "quantised"
        )
    settings = {
        "block_size": list(weight.block_size),
        "dtype": weight.dtype,
        "zero_point": weight.zero_point,
        "reduce_range": weight.reduce_range,
    }
    attributes = {key: module.__dict__[key] for key in _OWN if key in module.__dict__}
    return _Form(type(module), attributes, type(weight), settings, tuple(weight.scale.shape))
