"""Why weights of a layer are gathered or whole: the line of the model's code, and the cure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import matches, wildcard
from modular_converter.parallel.solve.choose import Candidate, choose
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles.layout import GATHERED
from modular_converter.parallel.trace.graph import Parameter, Trace


# (Part of a reason, cure). Other reasons are in the arithmetic, and have no cure.
_ADVICE = (
    ("a size in a view", "write -1 for this size, or compute it from attributes of the module, such as its heads"),
    ("a split size", "write chunk with the number of parts, or compute the size from attributes of the module"),
    ("a size of ", "compute this size from attributes of the module, or from the tensor that it is used with"),
    ("a slice that cuts across", "view the axis as heads and their width before it is cut"),
    ("a slice ", "compute the borders of this slice from attributes of the module, or cut with chunk"),
    (
        "a norm over groups of channels",
        "nn.GroupNorm counts its groups, of which a rank has a part: write it over x.unflatten(1, (-1, channels of a group)), with "
        "mean and square mean over all but the first two axes, and as many weights as channels",
    ),
    ("a repeat count", "compute this count from attributes of the module"),
    ("a buffer: ", "make it a parameter (without requires_grad if it is not learnt): parameters can be sharded"),
    ("a view that mixes axes", "view the axis as heads and their width before it is cut or moved"),
    ("rows are looked up in it", "take the part with a slice, split or chunk instead of a list of indices"),
    ("does not divide by", "lengths of heads or blocks must divide by 4 on the small instance: give other sizes"),
    ("does not give the length of its blocks", "compute the lengths of the blocks from attributes of the module"),
)
_LOOKED_UP = "rows are looked up in it"
_ATTENTION = "MultiheadAttention"
_OF_TORCH = (
    "torch's nn.MultiheadAttention computes with the whole width; write its projections as nn.Linear layers and their "
    "heads as view(batch, length, -1, head_dim)"
)


@dataclass(frozen=True)
class Hindrance:
    """A reason why weights cannot be sharded in pairs.

    Attributes:
        weights: names, with ``*`` for numbers of layers.
        site: ``path:line``, relative if below the working directory; empty if unknown.
        advice: the code to write instead.
    """

    weights: tuple[str, ...]
    reason: str
    site: str
    advice: str

    def __str__(self) -> str:
        site = f" ({self.site})" if self.site else ""
        return f"{', '.join(self.weights)}: {self.reason}{site}; {self.advice}"


def hindrances(trace: Trace, plan: Plan) -> list[Hindrance]:
    """The curable reasons why the plan gathers matrices in numbered layers or leaves them whole."""
    flow = follow(trace)
    wanted = {number: p.name for number, p in enumerate(trace.parameters) if _is_wanted(p, plan)}
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for candidate, reason in choose(flow).refused:
        touched = [wanted[place.parameter] for place in candidate.places if place.parameter in wanted]
        for cause, site, advice in _curable(flow, candidate, reason) if touched else ():
            found.setdefault((cause, site, advice), {}).update(dict.fromkeys(map(wildcard, touched)))
    return [Hindrance(tuple(names), *key) for key, names in _without_repeats(found).items()]


def _without_repeats(
    found: dict[tuple[str, str, str], dict[str, None]],
) -> dict[tuple[str, str, str], dict[str, None]]:
    """One entry for each line of code, which hinders all layers."""
    first: dict[tuple[str, str], tuple[str, str, str]] = {}
    result: dict[tuple[str, str, str], dict[str, None]] = {}
    for key, names in found.items():
        kept = first.setdefault((key[1] or key[0], key[2]), key)
        result.setdefault(kept, {}).update(names)
    return result


def _is_wanted(parameter: Parameter, plan: Plan) -> bool:
    if len(parameter.shape) < 2 or "*" not in wildcard(parameter.name):
        return False
    names = [*parameter.names, *(name.rpartition(".")[0] for name in parameter.names)]
    layouts = {rule.layout for rule in plan.rules if matches(rule.pattern, names)}
    return not layouts or layouts == {GATHERED}


def _curable(flow: Flow, candidate: Candidate, reason: str) -> Iterator[tuple[str, str, str]]:
    """(Reason, site, advice) of each reason that other code would cure; nothing if another reason would remain."""
    reasons = dict.fromkeys((*candidate.reasons, reason))
    curable = [cause for cause in reasons if _advice(flow, candidate, cause)]
    if len(curable) < len([cause for cause in reasons if cause in candidate.ops]):
        return
    for cause in curable:
        advice = _advice(flow, candidate, cause)
        yield "attention of torch" if advice == _OF_TORCH else cause, _site(flow, candidate.ops.get(cause, -1)), advice


def _advice(flow: Flow, candidate: Candidate, reason: str) -> str:
    op = candidate.ops.get(reason, -1)
    operation = flow.trace.ops[op] if op >= 0 else None
    if operation is not None and flow.trace.module_classes.get(operation.module) == _ATTENTION:
        return _OF_TORCH
    if reason == _LOOKED_UP and (operation is None or operation.name != "index"):
        return ""
    return next((advice for part, advice in _ADVICE if part in reason), "")


def _site(flow: Flow, op: int) -> str:
    call = flow.trace.ops[op].call if op >= 0 else -1
    site = flow.trace.calls[call].site if call >= 0 else ""
    below = os.path.join(os.getcwd(), "")
    return site.removeprefix(below)
