"""What a tool can say of a plan, and the largest part of a derived plan that it can say and that its own code runs.

A part of a plan is not a subset of its rules: a row-wise layer without its column-wise layer is wrong. So axes are left
whole, and the rules are written anew; large layers whose axis is left whole are sharded with a gather, if the tool can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from modular_converter.parallel.plans.emit import Inexpressible, inexpressible_of
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import is_inside, wildcard
from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.cost import covered
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles.layout import GATHERED, VOCABULARY
from modular_converter.parallel.trace.graph import Trace


@dataclass(frozen=True)
class Vocabulary:
    """A tool that takes plans.

    Attributes:
        name: of the tool, as its users write it.
        version: of the tool, whose facts these are.
        use: where the text goes.
        inexpressible: gives what the tool cannot say of a plan for a model.
        text: writes a plan without such parts.
        route: of ``RankPool``, by which its code, or the loader that it calls, runs a plan here; empty if none does.
        read: gives module path -> our style, as the tool reads a plan's text for a model; None if ``route`` shows it.
        styles: gives the same from a plan, to compare.
        gathers_norms: whether it gathers the shares that a norm over a projection takes.
        lacks: gives the reason why the tool cannot run a plan for its trace, nor any part of the plan; empty if it can.
        misruns: gives the reason why its code would give other numbers with a plan for its trace; empty if it would not.
    """

    name: str
    version: str
    use: str
    inexpressible: Callable[[Plan, torch.nn.Module], Sequence[Inexpressible]]
    text: Callable[[Plan, torch.nn.Module], str]
    route: str = ""
    gathers_norms: bool = False
    read: Callable[[str, torch.nn.Module], Mapping[str, str]] | None = None
    styles: Callable[[Plan, torch.nn.Module], Mapping[str, str]] = lambda plan, model: {}
    lacks: Callable[[Plan, Trace, torch.nn.Module], str] = lambda plan, trace, model: ""
    misruns: Callable[[Plan, Trace, torch.nn.Module], str] = lambda plan, trace, model: ""


Modules = Mapping[str, torch.nn.Module]
"""The modules of a model by their paths; the empty path is the model."""


def inexpressible_by(
    reasons: Callable[[PlanRule, Modules], Iterator[str]], divided: Collection[str] = ()
) -> Callable[[Plan, torch.nn.Module], Sequence[Inexpressible]]:
    """``Vocabulary.inexpressible`` of a tool that reads rules one by one.

    Args:
        reasons: gives the reasons against a rule for the modules of a model.
        divided: the names of integers that the tool divides.
    """

    def inexpressible(plan: Plan, model: torch.nn.Module) -> list[Inexpressible]:
        modules = dict(model.named_modules())
        return inexpressible_of(plan, lambda rule: reasons(rule, modules), divided)

    return inexpressible


# The most runs of a tool's loader in the search for the part of a plan that it runs.
_MOST_RUNS = 24

_Item = TypeVar("_Item", int, str)
Pair = frozenset[int]
Names = frozenset[str]


@dataclass(frozen=True)
class Restricted:
    """A part of a derived plan.

    Attributes:
        lost: name of a parameter that only the derived plan shards -> the reason.
    """

    plan: Plan
    lost: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shards:
    """The shards that a derived plan has, as axes of pairs, and names of weights sharded by vocabulary or gathered."""

    flow: Flow
    pairs: tuple[Pair, ...]
    every: Names

    @staticmethod
    def of(trace: Trace, plan: Plan) -> Shards:
        """The axes that a plan shards in pairs; a plan may leave some whole that its trace would allow."""
        flow = follow(trace)
        paired = tuple(rule for rule in plan.rules if rule.layout not in (GATHERED, VOCABULARY))
        cut = covered(trace, Plan(plan.model, paired))
        found = [
            frozenset(candidate.leaves)
            for candidate in choose(flow).accepted
            if any(flow.trace.parameters[place.parameter].name in cut for place in candidate.places)
        ]
        return Shards(flow, tuple(found), frozenset(parameter.name for parameter in trace.parameters))

    def plan(self, pairs: Sequence[Pair], names: Names) -> Plan:
        """The plan with these pairs, and with these weights sharded by vocabulary or gathered."""
        choice = choose(self.flow)
        every = [*choice.accepted, *(candidate for candidate, _ in choice.refused)]  # one may take another's place
        without = frozenset(leaf for candidate in every for leaf in candidate.leaves) - _joined(pairs)
        return plan_of(self.flow, Aim(without=without, apart=self.every - names))

    @property
    def leaves(self) -> frozenset[int]:
        """The axes of all pairs."""
        return _joined(self.pairs)

    def covered(self, plan: Plan) -> Names:
        """The parameters that a plan shards."""
        return frozenset(covered(self.flow.trace, plan))


def kept_of(
    trace: Trace, full: Plan, inexpressible: Callable[[Plan], Sequence[Inexpressible]], runs: Callable[[Plan], str]
) -> Restricted:
    """The part of a plan to hand over; a plan without rules if there is none.

    Args:
        inexpressible: gives what the tool cannot say of a plan.
        runs: gives the reason why the tool's code does not run a plan as the whole model; empty if it does.
    """

    def refusal(plan: Plan) -> str:
        against = inexpressible(plan)
        return str(against[0]) if against else runs(plan)

    if not refusal(full):
        return Restricted(full)
    shards = Shards.of(trace, full)
    reasons: dict[str, str] = {}
    pairs, names = _sayable(shards, inexpressible, reasons)
    plan = shards.plan(pairs, names)
    refused = refusal(plan) if plan.rules else ""
    if refused:
        before = shards.covered(plan)
        search = _Search(shards, refusal)
        pairs = search.largest(pairs, lambda some: shards.plan(some, frozenset()))
        alone = search.largest(_alone(shards, pairs, names), lambda some: shards.plan(pairs, _joined(some)))
        plan = shards.plan(pairs, _joined(alone))
        if plan.rules and refusal(plan):
            plan = Plan(full.model)
        reasons = dict.fromkeys(before - shards.covered(plan), refused) | reasons
    lost = shards.covered(full) - shards.covered(plan)
    return Restricted(
        plan, {name: reasons.get(name, "shards together with weights that are left whole") for name in lost}
    )


def _joined(parts: Sequence[frozenset[_Item]]) -> frozenset[_Item]:
    return frozenset[_Item]().union(*parts)


def _sayable(
    shards: Shards, inexpressible: Callable[[Plan], Sequence[Inexpressible]], reasons: dict[str, str]
) -> tuple[list[Pair], Names]:
    """The pairs, and the names of other weights, of which the tool can say all; ``reasons`` gets those against the rest."""
    pairs: list[Pair] = []
    for pair in shards.pairs:
        alone = shards.plan([pair], frozenset())
        against = inexpressible(alone)
        if against:
            _note(reasons, shards.covered(alone), against)
        else:
            pairs.append(pair)
    names = shards.every
    while True:
        plan = shards.plan(pairs, names)
        against = inexpressible(plan)
        if not against:
            return pairs, names
        parts = {one.part for one in against}
        hit = shards.covered(Plan(plan.model, tuple(rule for rule in plan.rules if _concerns(rule, parts))))
        _note(reasons, hit, against)
        touching = [pair for pair in pairs if shards.covered(shards.plan([pair], frozenset())) & hit]
        if touching or not hit & names:  # without a weight to name, the cause is unknown: give up the smallest pair
            dropped = touching or pairs[-1:]
            if not dropped:
                return [], frozenset()
            pairs = [pair for pair in pairs if pair not in dropped]
        else:
            names -= hit


def _note(reasons: dict[str, str], names: Names, against: Sequence[Inexpressible]) -> None:
    """Note the first reason against each weight: that against its own rule if there is one."""
    for name in names:
        own = (one for one in against if is_inside(wildcard(name), wildcard(one.part)))
        reasons.setdefault(name, str(next(own, against[0])))


def _concerns(rule: PlanRule, parts: set[str]) -> bool:
    """Whether a rule is one of these, or of a weight inside of a module with an integer that must shrink."""
    if rule.pattern in parts:
        return True
    return any(f"{rule.pattern}.".startswith(f"{part.partition(':')[0]}.") for part in parts if ":" in part)


def _alone(shards: Shards, pairs: Sequence[Pair], names: Names) -> list[Names]:
    """The weights sharded by vocabulary or gathered beside some pairs; the same weights of all layers go together."""
    extra = shards.covered(shards.plan(pairs, names)) - shards.covered(shards.plan(pairs, frozenset()))
    found: dict[str, set[str]] = {}
    for name in extra:
        found.setdefault(wildcard(name), set()).add(name)
    return [frozenset(found[pattern]) for pattern in sorted(found)]


_Part = TypeVar("_Part", bound=frozenset[Any])


@dataclass
class _Search:
    """The search for the largest part that runs; ``left`` counts the runs that it may still use."""

    shards: Shards
    runs: Callable[[Plan], str]
    left: int = _MOST_RUNS

    def largest(self, parts: Sequence[_Part], plan: Callable[[Sequence[_Part]], Plan]) -> list[_Part]:
        """The parts whose plan runs: all, or what runs of each half, together or else of the larger half."""
        if not parts or self._passes(plan(parts)):
            return list(parts)
        if len(parts) == 1:
            return []
        middle = len(parts) // 2
        first, second = self.largest(parts[:middle], plan), self.largest(parts[middle:], plan)
        if first and second and self._passes(plan([*first, *second])):
            return [*first, *second]
        return max(first, second, key=lambda some: self._elements(plan(some)))

    def _passes(self, plan: Plan) -> bool:
        self.left -= 1
        return self.left >= 0 and bool(plan.rules) and not self.runs(plan)

    def _elements(self, plan: Plan) -> int:
        names = self.shards.covered(plan)
        return sum(one.size for one in self.shards.flow.trace.parameters if one.name in names)
