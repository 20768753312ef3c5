"""The quick check of a plan, with threads of this process as ranks; gloo processes make the final check."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Resolution
from modular_converter.parallel.proof.compare import check_on_rank
from modular_converter.parallel.proof.judge import Verdict, both_draws
from modular_converter.parallel.proof.precision import Subject, without_unstable
from modular_converter.parallel.proof.subject import situation_of, subject_of
from modular_converter.parallel.shard.apply import Applied
from modular_converter.parallel.shard.collectives import ThreadGroup, run_on_threads
from modular_converter.parallel.shard.shares import plan_for_ranks
from modular_converter.parallel.tiny.copies import copy_of
from modular_converter.parallel.trace.unchanged import shared_state


# Classes of models whose runs change state that all copies share: attributes of classes, variables of files. Each rank
# gets its own state, which takes time at each collective.
_CHANGING: set[str] = set()


def check_model_on_threads(model: torch.nn.Module, plan: Plan, inputs: Mapping[str, Any], ranks: int) -> Verdict:
    """Check one plan of a model; see ``check_on_threads``."""
    return check_on_threads(subject_of(model, inputs), plan, ranks)


def check_on_threads(
    subject: Subject, plan: Plan | Resolution, ranks: int, also: Callable[[Applied], object] = lambda applied: None
) -> Verdict:
    """Run a plan on threads, each with a copy of the model, and compare with the whole model's numbers.

    Args:
        also: called with each sharded copy before its runs.

    Returns:
        The first failing verdict of a rank, else the first rank's; of both draws of weights.
    """
    first, again = _checked(subject, plan, ranks, also), subject.again
    if not first.passed or again is None:
        return first
    second = _checked(again, plan, ranks, also)
    if not second.passed:  # perhaps because of rounding, which takes time to check
        second = _checked(without_unstable(again), plan, ranks, also)
    return both_draws(first, second, situation_of(again))


def _checked(subject: Subject, plan: Plan | Resolution, ranks: int, also: Callable[[Applied], object]) -> Verdict:
    if isinstance(plan, Plan):
        plan = plan_for_ranks(plan, subject.model, subject.inputs, ranks)
    kind = f"{type(subject.model).__module__}.{type(subject.model).__qualname__}"
    before = shared_state(subject.model)
    done = [] if kind in _CHANGING else _verdicts(subject, plan, ranks, also)
    if before.give_back() or not done:
        _CHANGING.add(kind)
        done = _verdicts(subject, plan, ranks, also, apart=True)
    failed = [v for v in done if not v.passed and "another rank failed" not in v.reason]
    return next(iter(failed or [v for v in done if not v.passed] or done))


def _verdicts(
    subject: Subject, plan: Plan | Resolution, ranks: int, also: Callable[[Applied], object], apart: bool = False
) -> list[Verdict]:
    """The verdicts of the ranks; ``apart``: each has its own state of the model's classes and files."""
    verdicts: list[Verdict | None] = [None] * ranks
    copies = [copy_of(subject.model) for _ in range(ranks)]
    evidence = replace(subject.evidence, places=("threads",))

    def work(group: ThreadGroup) -> bool:
        model = copies[group.rank]
        verdict = check_on_rank(model, plan, subject.inputs, group, subject.whole, evidence, apart, also)
        verdicts[group.rank] = verdict
        return not verdict.passed

    run_on_threads(ranks, work, functools.partial(shared_state, subject.model) if apart else None)
    return [verdict for verdict in verdicts if verdict is not None]
