"""The effect of a plan on each layer and each rank, as rows of a table: shapes, bytes, collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import Piece, resolve
from modular_converter.parallel.plans.text_checks import first_number_wild, matches
from modular_converter.parallel.shard.shares import largest_share


OUTSIDE = "outside layers"


@dataclass(frozen=True)
class RuleRow:
    """A rule: the shape of its weight, whole and on a rank; its communication; bytes of a layer, whole and on a rank."""

    layer: str
    style: str
    whole: str
    local: str
    communication: str
    bytes_whole: int
    bytes_rank: int


@dataclass(frozen=True)
class LayerKind:
    """A kind of layer (``layers.*``), or the parts outside of layers.

    Attributes:
        count: the number of its layers.
        bytes_whole, bytes_rank: of one layer, with parameters that are not sharded; the average if layers differ.
        collectives: kind of collective -> the number of calls by one layer in a forward.
    """

    name: str
    count: int
    bytes_whole: int
    bytes_rank: int
    collectives: dict[str, int]


def full_model(small: torch.nn.Module) -> torch.nn.Module:
    """The model of the same class with the default configuration, on the meta device."""
    model: Any = small
    kind, config = type(model), type(model.config)()
    with torch.device("meta"):
        found: torch.nn.Module = kind(config)
    return found


def rows(plan: Plan, model: torch.nn.Module, ranks: int, width: int) -> list[RuleRow]:
    """A row for each rule, in the plan's order.

    Args:
        width: bytes of a number.

    Raises ``ApplyError`` if a rule matches nothing in the model.
    """
    pieces = resolve(plan, model).pieces
    parameters = dict(model.named_parameters(remove_duplicate=False))
    acting = [rule.pattern for rule in plan.rules if rule.layout.acts_for_weights]
    return [_row(rule, pieces, parameters, acting, ranks, width) for rule in plan.rules]


def _row(
    rule: PlanRule,
    pieces: dict[str, Piece],
    parameters: dict[str, torch.nn.Parameter],
    acting: list[str],
    ranks: int,
    width: int,
) -> RuleRow:
    names = _first_matched(rule, parameters)
    weight = next((name for name in names if not name.endswith(".bias")), names[0] if names else "")
    inside = any(matches(pattern, [weight.rpartition(".")[0]]) for pattern in acting)
    communication = "" if inside else rule.layout.leaves or ""
    if not weight:
        return RuleRow(rule.pattern, rule.style, "", "", communication, 0, 0)
    whole = tuple(parameters[weight].shape)
    local = largest_share(whole, pieces.get(weight), ranks)
    total = sum(parameters[name].numel() for name in names) * width
    share = sum(prod(largest_share(tuple(parameters[name].shape), pieces.get(name), ranks)) for name in names) * width
    return RuleRow(rule.pattern, _style_text(rule), _shape(whole), _shape(local), communication, total, share)


def _style_text(rule: PlanRule) -> str:
    parts = f" {':'.join(map(str, rule.parts))}" if rule.parts else ""
    return rule.style + parts + ("" if rule.dim is None else f" dim {rule.dim}")


def _first_matched(rule: PlanRule, parameters: dict[str, torch.nn.Parameter]) -> list[str]:
    """The first parameter that a rule matches, or the parameters of the first module that it matches."""
    found = matches(rule.pattern, parameters)
    if found:
        return found[:1]
    owner = next((n.rpartition(".")[0] for n in parameters if matches(rule.pattern, [n.rpartition(".")[0]])), None)
    if owner is None or rule.layout.of_module:
        return []
    return [name for name in parameters if name.rpartition(".")[0] == owner]


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def layers(
    plan: Plan,
    model: torch.nn.Module,
    small: torch.nn.Module,
    calls: Mapping[PlanRule, int],
    ranks: int,
    width: int,
) -> list[LayerKind]:
    """The kinds of layers, in the model's order.

    Args:
        small: the traced model.
        calls: rule -> the number of its collectives in one forward of ``small``.
        width: bytes of a number.
    """
    pieces = resolve(plan, model).pieces
    whole: Counter[str] = Counter()
    rank: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        group = _group(name)
        whole[group] += parameter.numel() * width
        rank[group] += prod(largest_share(tuple(parameter.shape), pieces.get(name), ranks)) * width
    counts, traced = _counts(model), _counts(small)
    collectives: dict[str, Counter[str]] = {}
    for rule, number in calls.items():
        if number and rule.layout.leaves:
            group = _group(rule.pattern)
            collectives.setdefault(group, Counter())[rule.layout.leaves] += number // traced.get(group, 1) or 1
    return [
        LayerKind(
            name,
            counts[name],
            whole[name] // counts[name],
            rank[name] // counts[name],
            dict(collectives.get(name, {})),
        )
        for name in whole
    ]


def _group(name: str) -> str:
    """``layers.0.mlp.up.weight`` and ``layers.*.mlp.up`` -> ``layers.*``."""
    words = first_number_wild(name).split(".")
    return ".".join(words[: words.index("*") + 1]) if "*" in words else OUTSIDE


def _counts(model: torch.nn.Module) -> dict[str, int]:
    numbers: dict[str, set[str]] = {}
    for name, _ in model.named_parameters():
        group = _group(name)
        numbers.setdefault(group, set()).add("" if group == OUTSIDE else name.split(".")[group.count(".")])
    return {group: len(found) for group, found in numbers.items()}


def amount(size: int) -> str:
    """A number of bytes as text: ``1.5 MB``."""
    value, unit = float(size), 0
    while value >= 1000 and unit < 4:
        value, unit = value / 1000, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.3g} {'kMGT'[unit - 1]}B"
