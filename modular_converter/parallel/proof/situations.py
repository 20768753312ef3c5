"""The situation of the second proof: padding, more tokens and train mode, as far as a model allows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.proof.evidence import DECODING, LENGTHS, PADDING, TRAIN_MODE
from modular_converter.parallel.tiny.copies import copy_of, seed_cpu
from modular_converter.parallel.tiny.fields import dropout_rates
from modular_converter.parallel.trace.call_names import forward_names
from modular_converter.parallel.trace.record import tensors_in
from modular_converter.parallel.trace.unchanged import unchanged


# Further ids: the length is a prime number, and larger than the small windows and blocks of configurations.
_MORE = 19
_HIDDEN = 3
# Tensors of small instances have thousands of entries; if weights decide a length, there may be millions.
_MOST_ENTRIES = 2_000_000


@dataclass(frozen=True)
class Situation:
    """A model and inputs for one forward, and the names of its special features."""

    model: torch.nn.Module
    inputs: Mapping[str, Any]
    special: tuple[str, ...]


def possible(model: Any, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The situations that a model allows beside a plain forward in eval mode."""
    generates = getattr(model, "can_generate", None)
    found = [PADDING] if "attention_mask" in forward_names(model) else []
    found += [LENGTHS] if isinstance(inputs.get("input_ids"), torch.Tensor) else []
    found += [TRAIN_MODE]
    return (*found, DECODING) if generates is not None and generates() else tuple(found)


def other_situation(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Situation:
    """A copy of the model in the richest situation in which it runs deterministically; else in the plain one."""
    padded, longer = with_mask(model, inputs), with_mask(model, _longer(inputs))
    masked = (PADDING,) if padded.keys() != inputs.keys() else ()
    length = (LENGTHS,) if _lengths(longer) != _lengths(padded) else ()
    for given, special, train in _ladder(inputs, padded, longer, masked, length):
        found = _training(model) if train else copy_of(model)
        if special and not _is_steady(found, given):
            continue
        return Situation(found, given, special)
    raise AssertionError("the plain situation is always possible")


def _ladder(
    plain: Mapping[str, Any],
    padded: Mapping[str, Any],
    longer: Mapping[str, Any],
    masked: tuple[str, ...],
    length: tuple[str, ...],
) -> Iterator[tuple[Mapping[str, Any], tuple[str, ...], bool]]:
    """(Inputs, special features, train mode) of each situation, from the richest to the plain one."""
    for train in (True, False):
        mode = (TRAIN_MODE,) if train else ()
        if length:
            yield longer, (*masked, *length, *mode), train
        yield padded, (*masked, *mode), train
        if masked:
            yield plain, mode, train


def with_mask(model: torch.nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with an ``attention_mask`` that hides the last tokens of the first row, if the model takes a mask."""
    ids = inputs.get("input_ids")
    result = dict(inputs)
    if isinstance(ids, torch.Tensor) and ids.dim() == 2 and "attention_mask" in forward_names(model):
        mask = torch.ones_like(ids)
        mask[0, -_HIDDEN:] = 0
        result.setdefault("attention_mask", mask)
    return result


def _longer(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with more ids; unchanged if there are other tensors, whose lengths may depend on each other."""
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    ids = [name for name in ("input_ids", "decoder_input_ids") if name in tensors]
    if set(tensors) != set(ids) or any(tensors[name].dim() != 2 for name in ids):
        return dict(inputs)
    more = {name: torch.cat([tensors[name], tensors[name].repeat(1, _MORE)[:, :_MORE].flip(1)], 1) for name in ids}
    return dict(inputs) | more


def _lengths(inputs: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors_in(dict(inputs))]


def _training(model: torch.nn.Module) -> torch.nn.Module:
    """A copy in train mode without dropout, which would drop different entries on the ranks."""
    found = copy_of(model).train()
    records = {id(record): record for module in found.modules() for record in (module, *_configs(module))}
    for record in records.values():
        for name in dropout_rates(record):
            setattr(record, name, 0.0)
    return found


def _configs(module: torch.nn.Module) -> Iterator[Any]:
    """The configuration of a module, and the configurations inside it."""
    waiting = [module.__dict__.get("config")]
    while waiting:
        config = waiting.pop()
        if hasattr(config, "to_dict"):
            yield config
            waiting += list(vars(config).values())


def _is_steady(model: torch.nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether the model runs with small tensors and gives finite numbers, the same for two seeds."""
    runs = []
    handles = [module.register_forward_hook(_check_size) for module in model.modules()]
    try:
        for seed in (11, 12):
            seed_cpu(seed)
            with unchanged(model), torch.no_grad():
                runs.append(tensors_in(model(**inputs)))
    except Exception:  # the model's own code may raise any error
        return False
    finally:
        for handle in handles:
            handle.remove()
    first, second = runs
    finite = any(bool(torch.isfinite(tensor).all()) for tensor in first)
    return finite and len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second))


def _check_size(module: torch.nn.Module, args: Any, result: Any) -> None:
    """A hook that raises an error if tensors are too large for a proof."""
    if any(tensor.numel() > _MOST_ENTRIES for tensor in tensors_in(result)):
        raise RuntimeError(f"more than {_MOST_ENTRIES} entries in a tensor")
