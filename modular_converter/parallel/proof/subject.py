"""What a proof runs: the model and its situations, such as other numbers, dropout, masks and training."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.proof.compare import decoded_whole
from modular_converter.parallel.proof.judge import DECODING, LENGTHS, PADDING, TRAIN_MODE, Evidence
from modular_converter.parallel.proof.numbers import watched
from modular_converter.parallel.proof.precision import Subject, in_fitting_precision, in_float64
from modular_converter.parallel.tiny.build import SEED, copy_for_training, copy_of, randomise, seed_cpu
from modular_converter.parallel.tiny.fields import config_fields, configs_within
from modular_converter.parallel.trace.record import bound_arguments, forward_names, tensors_in
from modular_converter.parallel.trace.unchanged import unchanged


# Further ids: the length is a prime number, and larger than the small windows and blocks of configurations.
_MORE = 19
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
    tried = (
        Situation(copy_for_training(model) if train else copy_of(model), given, special)
        for given, special, train in _ladder(inputs, padded, longer, masked, length)
    )
    return next(one for one in tried if not one.special or _is_steady(one.model, one.inputs))


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
    """Inputs with an ``attention_mask`` that hides the last quarter of the first row, if the model takes a mask.

    At the end: for a first token that attends to no token, kernels give different results.
    """
    ids = inputs.get("input_ids")
    result = dict(inputs)
    if isinstance(ids, torch.Tensor) and ids.dim() == 2 and "attention_mask" in forward_names(model):
        mask = torch.ones_like(ids)
        mask[0, -max(1, ids.shape[1] // 4) :] = 0
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


_NO_SECOND = "a second draw of weights: with it the model's outputs are not finite"


def subject_of(model: torch.nn.Module, inputs: Mapping[str, Any], second: bool = True) -> Subject:
    """The model, its inputs and its numbers.

    Args:
        second: whether to add a run with other weights, padding, more tokens, and in train mode.
    """
    found = in_fitting_precision(model, inputs)
    with unchanged(found.model), arguments_of(found.model) as arguments:
        tokens, failed = decoded_whole(found.model, found.inputs)
    evidence = scope_of(found, (DECODING,) if tokens else (), model)
    evidence = dataclasses.replace(evidence, arguments=tuple(dict.fromkeys((*evidence.arguments, *arguments))))
    evidence = evidence.with_gap(failed) if failed else evidence
    again = _with_other_weights(model, inputs) if second else None
    if second and again is None:
        evidence = evidence.with_gap(_NO_SECOND)
    whole = dataclasses.replace(found.whole, tokens=tokens)
    return dataclasses.replace(found, whole=whole, evidence=evidence, again=again)


def situation_of(subject: Subject) -> str:
    """The special features of the run with other weights."""
    return ", ".join(("other weights", *subject.evidence.situations))


def _with_other_weights(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject | None:
    """The numbers with other weights in another situation, since one seed or a plain forward may hide a mistake.

    Such mistakes are in experts without tokens, in masks, and in norms in train mode. None without finite numbers.
    """
    other = copy_of(model)
    randomise(other, SEED + 1)
    situation = other_situation(other, inputs)
    double = in_float64(situation.model, situation.inputs)
    if double is not None and not double.whole.gaps and _is_finite(double):
        found = double
    else:
        try:
            found = in_fitting_precision(situation.model, situation.inputs)
        except Exception:  # the model's own code may not run with these weights
            return None
    evidence = dataclasses.replace(scope_of(found, situation.special, other), draws=2)
    return dataclasses.replace(found, evidence=evidence) if _is_finite(found) else None


@contextlib.contextmanager
def arguments_of(model: torch.nn.Module) -> Iterator[dict[str, None]]:
    """A context that collects the names of the arguments of the model's forward."""
    met: dict[str, None] = {}

    def note(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        given = bound_arguments(module, args, kwargs)
        met.update(dict.fromkeys(name for name, value in given.items() if value is not None))

    with model.register_forward_pre_hook(note, with_kwargs=True):
        yield met


def _is_finite(subject: Subject) -> bool:
    return any(bool(torch.isfinite(tensor).all()) for tensor in subject.whole.outputs)


def scope_of(subject: Subject, situations: Sequence[str], asked: torch.nn.Module) -> Evidence:
    """The evidence from the runs of a whole model."""
    with unchanged(subject.model) as lost:
        met = watched(subject.model, subject.inputs)
    types = dict.fromkeys(str(p.dtype).removeprefix("torch.") for p in subject.model.parameters())
    gaps = [f"{one}: it cannot be restored between runs" for one in lost]
    branches = ", ".join(list(met.reads)[:2]) + (" and others" if len(met.reads) > 2 else "")
    gaps += [f"other outcomes of values that are read in {branches or 'the model'}"] if met.reads else []
    return Evidence(
        sizes=tuple(_sizes(getattr(asked, "config", None))),
        inputs=tuple(
            f"{name} {'x'.join(map(str, value.shape))}"
            for name, value in subject.inputs.items()
            if isinstance(value, torch.Tensor)
        ),
        arguments=tuple(name for name, value in subject.inputs.items() if value is not None),
        situations=tuple(situations),
        types=tuple(types),
        draws=1,
        kinds=tuple(met.kinds),
        operators=tuple(met.operators),
        gaps=tuple(gaps),
        idle=met.idle,
        possible=possible(asked, subject.inputs),
    )


def _sizes(config: Any) -> Iterator[str]:
    """The integers of a configuration, and of those inside it, that differ from the defaults of their class."""
    for prefix, one in configs_within(config):
        for item in config_fields(one):
            value = one.__dict__.get(item.name)
            if type(value) is int and value != item.default:
                yield f"{prefix}{item.name}={value}"
