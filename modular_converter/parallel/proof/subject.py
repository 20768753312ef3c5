"""The subject of a proof: the whole model's numbers with two draws of weights, and the evidence of these runs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.proof.decode import decoded_whole
from modular_converter.parallel.proof.evidence import DECODING, Evidence
from modular_converter.parallel.proof.precision import Subject, in_fitting_precision, in_float64
from modular_converter.parallel.proof.situations import other_situation, possible
from modular_converter.parallel.proof.watch import watched
from modular_converter.parallel.tiny.build import SEED, randomise
from modular_converter.parallel.tiny.copies import copy_of
from modular_converter.parallel.tiny.fields import config_fields, is_config
from modular_converter.parallel.trace.call_names import bound_arguments
from modular_converter.parallel.trace.unchanged import unchanged


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

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield met
    finally:
        handle.remove()


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


def _sizes(config: Any, prefix: str = "") -> list[str]:
    """The integers of a configuration that differ from the defaults of its class."""
    found: list[str] = []
    for item in config_fields(config):
        value = config.__dict__.get(item.name)
        if is_config(value):
            found += _sizes(value, f"{prefix}{item.name}.")
        elif type(value) is int and value != item.default:
            found.append(f"{prefix}{item.name}={value}")
    return found
