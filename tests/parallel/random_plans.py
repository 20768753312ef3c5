"""Random changes of a plan, nearly all of them wrong, and a larger instance of the model on which each can be tried."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import wildcard
from modular_converter.parallel.shard.apply import apply, local_part
from modular_converter.parallel.shard.collectives import ThreadGroup, run_on_threads
from modular_converter.parallel.shard.shares import with_units
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.tiny.build import Small, Target, build, randomise
from modular_converter.parallel.tiny.fields import is_config
from modular_converter.parallel.tiny.shrink import STRATEGIES
from modular_converter.parallel.trace.record import record, tensors_in


# Far above rounding of these types, far below an effect of a wrong plan.
_DIFFERENT = {torch.float64: 1e-6, torch.float32: 3e-3}
# Values of a larger instance by small value and name: other ratios of heads, widths and depths than the small ones have.
_LARGER = {
    "num_attention_heads": 12, "n_head": 12, "num_heads": 12, "encoder_attention_heads": 12,
    "decoder_attention_heads": 12, "n_heads": 12, "num_key_value_heads": 4, "hidden_size": 192, "n_embd": 192,
    "d_model": 192, "dim": 192, "head_dim": 16, "d_kv": 16, "intermediate_size": 336, "d_ff": 336, "ffn_dim": 336,
    "encoder_ffn_dim": 336, "decoder_ffn_dim": 336, "hidden_dim": 336, "n_inner": 336, "moe_intermediate_size": 80,
    "num_hidden_layers": 3, "n_layer": 3, "num_layers": 3, "n_layers": 3, "encoder_layers": 3, "decoder_layers": 3,
    "vocab_size": 208,
}  # fmt: skip
_WIDTHS = ("vocab_size", "intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner")


def random_plan(plan: Plan, model: torch.nn.Module, choice: random.Random) -> tuple[str, Plan]:
    """A changed plan, and what was changed."""
    while True:
        what = choice.choice(list(_CHANGES))
        changed = _CHANGES[what](plan, model, choice)
        if changed is not None and changed != plan:
            old, new = (set(str(one).splitlines()) for one in (plan, changed))
            return f"{what}: {'; '.join(sorted(old ^ new))}", changed


def _dropped(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    return _replaced(plan, choice, lambda rule: ())


def _restyled(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    names = [name for name, style in STYLES.items() if not style.layout.divides_experts]
    return _replaced(plan, choice, lambda rule: (dataclasses.replace(rule, style=choice.choice(names)),))


def _attribute_lost(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    if not plan.attributes:
        return None
    lost = choice.choice(plan.attributes)
    return dataclasses.replace(plan, attributes=tuple(name for name in plan.attributes if name != lost))


def _attribute_added(plan: Plan, model: torch.nn.Module, choice: random.Random) -> Plan | None:
    path, module = choice.choice([pair for pair in model.named_modules() if pair[0]])
    names = [name for name, value in vars(module).items() if type(value) is int and value > 1 and name[0] != "_"]
    new = f"{wildcard(path)}:{choice.choice(names)}" if names else ""
    return dataclasses.replace(plan, attributes=(*plan.attributes, new)) if new not in ("", *plan.attributes) else None


def _sum_added(plan: Plan, model: torch.nn.Module, choice: random.Random) -> Plan:
    path = choice.choice([path for path, _ in model.named_modules() if path])
    return dataclasses.replace(plan, rules=(*plan.rules, PlanRule(wildcard(path), "all_reduce")))


def _sum_missing(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    def bare(rule: PlanRule) -> tuple[PlanRule, ...]:
        dim = rule.dim if rule.dim is not None else 0 if rule.style == "embedding_rowwise" else 1
        return (PlanRule(f"{rule.pattern}.weight", "shard", dim, rule.parts),)

    return _replaced(plan, choice, bare, lambda rule: rule.style in ("rowwise", "packed_rowwise", "embedding_rowwise"))


def _gradient_sum_missing(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    def bare(rule: PlanRule) -> tuple[PlanRule, ...]:
        return tuple(
            PlanRule(f"{rule.pattern}.{name}", "shard", rule.dim or 0, rule.parts) for name in ("weight", "bias")
        )

    return _replaced(plan, choice, bare, lambda rule: rule.style in ("colwise", "packed_colwise"))


def _other_dimension(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    return _replaced(plan, choice, lambda rule: (dataclasses.replace(rule, dim=choice.randrange(3)),))


def _parts_lost(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    plain = {"packed_colwise": "colwise", "packed_rowwise": "rowwise"}
    return _replaced(
        plan,
        choice,
        lambda rule: (dataclasses.replace(rule, style=plain.get(rule.style, rule.style), parts=()),),
        lambda rule: bool(rule.parts),
    )


def _swapped(plan: Plan, model: Any, choice: random.Random) -> Plan | None:
    if len(plan.rules) < 2:
        return None
    first, second = choice.sample(range(len(plan.rules)), 2)
    rules = list(plan.rules)
    one, other = rules[first], rules[second]
    rules[first] = dataclasses.replace(other, pattern=one.pattern)
    rules[second] = dataclasses.replace(one, pattern=other.pattern)
    return dataclasses.replace(plan, rules=tuple(rules))


def _replaced(
    plan: Plan,
    choice: random.Random,
    change: Callable[[PlanRule], tuple[PlanRule, ...]],
    fits: Callable[[PlanRule], bool] = lambda rule: True,
) -> Plan | None:
    """The plan with one of the rules that fit changed; None if none does."""
    numbers = [number for number, rule in enumerate(plan.rules) if fits(rule)]
    if not numbers:
        return None
    at = choice.choice(numbers)
    return dataclasses.replace(plan, rules=(*plan.rules[:at], *change(plan.rules[at]), *plan.rules[at + 1 :]))


_CHANGES: Mapping[str, Callable[[Plan, torch.nn.Module, random.Random], Plan | None]] = {
    "a rule is dropped": _dropped,
    "a style is changed": _restyled,
    "an attribute is lost": _attribute_lost,
    "an attribute is added": _attribute_added,
    "a sum is added": _sum_added,
    "a sum is missing": _sum_missing,
    "a sum of gradients is missing": _gradient_sum_missing,
    "a dimension is changed": _other_dimension,
    "parts are lost": _parts_lost,
    "two styles are swapped": _swapped,
}


def larger(target: Target, small: Small, plan: Plan) -> Small | None:
    """An instance with other heads, widths, depth and weights, on which a right plan holds; None where there is none.

    A model without fields of sizes that are known here is shrunk in another way.
    """
    for given, strategy in _attempts(small):
        try:
            found = build(target, given, strategy)
        except PlanError:
            continue
        if _shapes(found) != _shapes(small):
            randomise(found.model, 101)
            found = _in_float64(found) or found
            if is_same(found, deviation(found, plan)):
                return found
    return None


def _attempts(small: Small) -> Iterator[tuple[dict[str, int], str]]:
    wanted = dict(_wanted(getattr(small.model, "config", None)))
    wanted = {name: value for name, value in wanted.items() if name == "embed_dim"} or wanted
    words = {name: value for name, value in wanted.items() if not name.endswith("vocab_size")}
    for given in (
        wanted,
        words,
        {name: value for name, value in wanted.items() if name.rpartition(".")[2] in _WIDTHS},
    ):
        if given:
            yield given, small.strategy
    for strategy in STRATEGIES:
        if strategy != small.strategy:
            yield {}, strategy


def _shapes(small: Small) -> list[torch.Size]:
    return [parameter.shape for parameter in small.model.parameters()]


def _in_float64(small: Small) -> Small | None:
    """The same in float64; None for a model that fixes a type somewhere."""
    fine = Small(small.name, small.strategy, copy.deepcopy(small.model).double(), _doubled(small.inputs))
    try:
        _run(fine.model, fine.inputs)
    except RuntimeError:
        return None
    return fine


def is_same(small: Small, found: float | str) -> bool:
    """Whether a deviation is rounding alone."""
    return isinstance(found, float) and found < _DIFFERENT[next(small.model.parameters()).dtype]


def _wanted(config: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in list(getattr(config, "__dict__", {}).items()):
        if is_config(value):
            yield from _wanted(value, f"{prefix}{name}.")
        elif name in _LARGER and type(value) is int and value > 1:
            yield f"{prefix}{name}", _LARGER[name]
        elif name == "embed_dim" and type(value) is int:  # that of stages: the other widths follow from it
            yield f"{prefix}{name}", 2 * value


def _doubled(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def deviation(small: Small, plan: Plan, ranks: int = 2) -> float | str:
    """The largest deviation of outputs and gradients of the sharded model on any rank, relative to each tensor's norm.

    A plain comparison of its own, which shares nothing with the judge but the application of the plan. An error of the
    sharded model is returned as text.
    """
    outputs, gradients = _run(small.model, small.inputs)
    with contextlib.suppress(PlanError):  # published numbers of heads, such as three, divide by no number of ranks
        plan = with_units(plan, small.model, record(small.model, small.inputs), ranks)
    found = dict[int, float | str]()

    def work(group: ThreadGroup) -> bool:
        try:
            found[group.rank] = _deviation(copy.deepcopy(small), plan, group, outputs, gradients)
        except Exception as error:
            found[group.rank] = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
            return True
        return False

    run_on_threads(ranks, work)
    said = [value for value in found.values() if isinstance(value, str)]
    return said[0] if said else max(value for value in found.values() if isinstance(value, float))


def _deviation(
    small: Small,
    plan: Plan,
    group: ThreadGroup,
    outputs: list[torch.Tensor],
    gradients: dict[str, torch.Tensor],
) -> float:
    pieces = apply(small.model, plan, group).resolution.pieces
    got, found = _run(small.model, small.inputs)
    if [tensor.shape for tensor in got] != [tensor.shape for tensor in outputs]:
        return float("inf")
    pairs = list(zip(got, outputs))
    largest = max((float(gradient.norm()) for gradient in gradients.values()), default=0.0)
    worst = max(_relative(a, b) for a, b in pairs)
    for name, want in gradients.items():
        local = local_part(want, pieces[name], group) if name in pieces else want
        error = (found[name] - local).norm() / max(float(want.norm()), 1e-3 * largest, 1e-30)
        worst = max(worst, float(error))
    return worst


def _relative(got: torch.Tensor, want: torch.Tensor) -> float:
    if not (want.is_floating_point() or want.is_complex()):
        return 0.0 if torch.equal(got, want) else float("inf")
    both = torch.isfinite(want)
    if not torch.equal(torch.isfinite(got), both):
        return float("inf")
    return float((got - want)[both].norm() / want[both].norm().clamp_min(1e-300))


def _run(model: torch.nn.Module, inputs: Mapping[str, Any]) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    model.zero_grad(set_to_none=True)
    torch.default_generator.manual_seed(5)
    outputs = tensors_in(model(**inputs))
    roots = [tensor for tensor in outputs if tensor.is_floating_point() and tensor.requires_grad]
    if roots:
        sum((torch.sin(3 * root) + root).sum() / root.numel() for root in roots).backward()
    gradients = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
    return [tensor.detach() for tensor in outputs], gradients
