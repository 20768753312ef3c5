"""What another tool can say of a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from modular_converter.parallel.plans.emit import Unsaid, unsaid_of
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.trace.graph import Trace


@dataclass(frozen=True)
class Vocabulary:
    """A tool that takes plans.

    Attributes:
        name: of the tool, as its users write it.
        version: of the tool, whose facts these are.
        use: where the text goes.
        unsaid: gives what the tool cannot say of a plan for a model.
        text: writes a plan without such parts.
        route: of ``RankPool``, by which its code, or the loader that it calls, runs a plan here; empty if none does.
        read: gives module path -> our style, as the tool reads a plan's text for a model; None if ``route`` shows it.
        styles: gives the same from a plan, to compare.
        gathers_norms: whether it gathers the shares that a norm over a projection takes.
        lacks: gives the reason why the tool cannot run a part of a derived plan for its trace; empty if it can.
    """

    name: str
    version: str
    use: str
    unsaid: Callable[[Plan, torch.nn.Module], Sequence[Unsaid]]
    text: Callable[[Plan, torch.nn.Module], str]
    route: str = ""
    gathers_norms: bool = False
    read: Callable[[str, torch.nn.Module], Mapping[str, str]] | None = None
    styles: Callable[[Plan, torch.nn.Module], Mapping[str, str]] = lambda plan, model: {}
    lacks: Callable[[Plan, Trace, torch.nn.Module], str] = lambda plan, trace, model: ""


Modules = Mapping[str, torch.nn.Module]
"""The modules of a model by their paths; the empty path is the model."""


def unsaid_by(
    reasons: Callable[[PlanRule, Modules], Iterator[str]], divided: Collection[str] = ()
) -> Callable[[Plan, torch.nn.Module], Sequence[Unsaid]]:
    """``Vocabulary.unsaid`` of a tool that reads rules one by one.

    Args:
        reasons: gives the reasons against a rule for the modules of a model.
        divided: the names of integers that the tool divides.
    """

    def unsaid(plan: Plan, model: torch.nn.Module) -> list[Unsaid]:
        modules = dict(model.named_modules())
        return unsaid_of(plan, lambda rule: reasons(rule, modules), divided)

    return unsaid
