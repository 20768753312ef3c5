"""Whether a plan holds at the sizes that a configuration class has by default: on the meta device, without weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from modular_converter.parallel.engine.base.without_data import run_without_data
from modular_converter.parallel.engine.choice.preflight import OneOf
from modular_converter.parallel.errors import one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.tiny.fields import config_fields, is_config, raw
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.tiny.shrink import shrink
from modular_converter.parallel.tiny.target import Target


SIZES = (2, 4, 8)
_WIDTHS = re.compile(r"vocab(ulary)?(_size)?$|experts?$")


def holds_at(target: Target, plan: Plan) -> dict[int, str]:
    """Number of devices -> why the plan does not hold there at published sizes; empty if it does.

    Widths, heads, vocabulary and experts are those of the class; layers are few, because they are alike.
    """
    found: dict[int, str] = {}
    try:
        runs = _error(published(target)) == ""
        plan = fitting(plan, published(target))
    except Exception as error:  # a configuration whose defaults do not fit together
        return dict.fromkeys(SIZES, f"cannot be built: {one_line(error)}")
    for size in SIZES:
        model = published(target)
        try:
            apply(model, plan, OneOf(size))
        except Exception as error:  # a block, an integer, a rule that does not fit
            found[size] = one_line(error)
            continue
        found[size] = _error(model) if runs else ""
    return found


def published(target: Target) -> torch.nn.Module:
    """A model at the default sizes of its classes, on the meta device, with few layers."""
    kind, config = target.load()
    made = shrink(config, "depth", dict(_wide(config())))
    with torch.device("meta"):
        model: torch.nn.Module = kind(made)
    return model.eval()


def _wide(default: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Vocabularies and numbers of experts, with their default values."""
    for item in config_fields(default):
        value = raw(default, item.name)
        if is_config(value):
            yield from _wide(value, f"{prefix}{item.name}.")
        elif type(value) is int and _WIDTHS.search(item.name):
            yield f"{prefix}{item.name}", value


def _error(model: Any) -> str:
    """The error of a forward without data; empty if there is none."""
    try:
        run_without_data(model, kwargs=make_inputs(model))
    except Exception as error:  # whatever a model's own code raises
        return one_line(error)
    return ""
