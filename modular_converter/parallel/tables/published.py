"""Whether a plan holds at the sizes that a configuration class has by default: on the meta device, without weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from modular_converter.parallel.engine.base.skeleton import dismantle
from modular_converter.parallel.engine.choice.fit import fit
from modular_converter.parallel.errors import one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.tiny.fields import config_fields, is_config, raw
from modular_converter.parallel.tiny.shrink import shrink
from modular_converter.parallel.tiny.target import Target


SIZES = (2, 3, 4, 8)
WHOLE = "whole: "
_WIDTHS = re.compile(r"vocab(ulary)?(_size)?$|experts?$")


def holds_at(target: Target, plan: Plan) -> dict[int, str]:
    """Number of devices -> why the plan does not hold there at published sizes; empty if it does.

    A plan also runs where parts stay whole on each device; these are named after ``WHOLE``.
    Widths, heads, vocabulary and experts are those of the class; layers are few, because they are alike.
    """
    found: dict[int, str] = {}
    try:
        model = published(target)
        plan, skeleton = fitting(plan, model), dismantle(model, lambda name, tensor: tensor.dtype)[0]
    except Exception as error:  # a configuration whose defaults do not fit together
        return dict.fromkeys(SIZES, f"cannot be built: {one_line(error)}")
    for size in SIZES:
        try:
            whole = fit(skeleton, plan, size).whole
        except Exception as error:  # a rule that does not fit, or nothing left to share out
            found[size] = one_line(error)
            continue
        found[size] = f"{WHOLE}{', '.join(whole)}" if whole else ""
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
