"""Inputs for trials of a user's model: the first layout with which the model runs without data."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Skeleton, assemble_model, skeleton_of
from modular_converter.parallel.choice.without_data import (
    META,
    Guesses,
    on_meta,
    run_without_data,
    tried_without_data,
)
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.tiny.inputs import candidates, inputs_that_run


# The model's own types, and the type in which all operations run without data, such as grouped products.
TYPES = (None, torch.bfloat16)
# The latest results: the choice of a plan and the hand-over need the same.
_INPUTS: dict[tuple[Skeleton, torch.dtype | None], dict[str, Any] | str] = {}
_MOST_LATEST = 8


def bare(skeleton: Skeleton, kind: torch.dtype | None) -> torch.nn.Module:
    """The whole model without data, converted to ``kind`` unless it is None."""
    model = assemble_model(skeleton, META)[0]
    return model if kind is None else model.to(kind)


def inputs_without_data(skeleton: Skeleton, kind: torch.dtype | None) -> dict[str, Any]:
    """The first inputs with which a model runs without data, floating tensors converted to ``kind`` unless it is None.

    Tensors are kept for the next rank, and the error if no inputs are known: to try four layouts of images of 1540
    pixels takes 0.8 s.
    """
    key = skeleton, kind
    found = _INPUTS.get(key)
    if found is None:
        try:
            found = inputs_of_bare(bare(skeleton, kind).eval(), kind)
        except Exception as error:  # raised by the model's own code, or there are no inputs for it
            found = one_line(error)
        values = found.values() if isinstance(found, dict) else ()
        if all(isinstance(value, (torch.Tensor, bool, int, type(None))) for value in values):  # no caches
            _INPUTS[key] = found
        for oldest in list(_INPUTS)[:-_MOST_LATEST]:
            del _INPUTS[oldest]
    if isinstance(found, str):
        raise ApplyError(f"no inputs are known: {found}")
    return dict(found)


def inputs_of_bare(model: torch.nn.Module, kind: torch.dtype | None) -> dict[str, Any]:
    """The same for a model on the meta device."""

    def run(inputs: dict[str, Any]) -> None:
        given = on_meta_of_type(inputs, kind)
        tried_without_data(functools.partial(run_without_data, model, kwargs=given))

    with Guesses():
        return on_meta_of_type(inputs_that_run(model, run), kind)


def on_meta_of_type(inputs: Mapping[str, Any], kind: torch.dtype | None) -> dict[str, Any]:
    """Inputs on the meta device, floating tensors converted to ``kind`` unless it is None."""
    given = {name: on_meta(value) for name, value in inputs.items()}
    if kind is None:
        return given
    floating = {n: v for n, v in given.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
    return given | {name: value.to(kind) for name, value in floating.items()}


def inputs_with_data(model: torch.nn.Module) -> dict[str, Any]:
    """Inputs with data in the layout with which the model runs without data; the likeliest ones if it does not run."""
    found = candidates(model)
    likeliest = next(found)
    try:
        known = _layout(inputs_without_data(skeleton_of(model), None))
    except Exception:  # of the model's own code
        return likeliest
    return (
        likeliest if _layout(likeliest) == known else next((one for one in found if _layout(one) == known), likeliest)
    )


def _layout(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.shape if isinstance(value, torch.Tensor) else type(value) for name, value in inputs.items()}
