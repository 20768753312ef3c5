"""The types of derived plans fit, and those of wrong plans do not: sums left out or doubled, dimensions, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.plans.text_checks import matches
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record
from tests.parallel.mutations import mutations
from tests.parallel.proof.layout_types import TypeFault, has_faults, type_faults
from tests.parallel.styles.test_styles import inputs_of, model_of, spoiled
from tests.parallel.styles.test_styles import plan_of as example_of


TYPES = (
    *(
        "llama",
        "gpt2",
        "bert",
        "bloom",
        "mixtral",
        "deepseek_v3",
        "t5",
        "whisper",
        "clip",
        "qwen3_next",
        "mamba",
        "xlnet",
    ),
    *("longformer", "prophetnet", "phi3", "gpt_oss", "d_fine"),
)
EXAMPLES = [name for name, style in STYLES.items() if not style.layout.divides_experts]


@cache
def traced(name: str):
    """The small instance of a type, its trace and its plan, without any proof."""
    small = build(target_of(name))
    trace = record(small.model, small.inputs, name)
    return small.model, trace, plan_of(follow(trace), Aim())


@pytest.mark.parametrize("name", TYPES)
def test_the_types_of_a_derived_plan_fit(name: str) -> None:
    model, trace, plan = traced(name)
    assert type_faults(trace, resolve(plan, model)) == []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "d_fine" else []) for name in TYPES]
)
def test_every_wrong_plan_is_found(name: str) -> None:
    model, trace, plan = traced(name)
    passed = [what for what, wrong in (*mutations(plan), *additions(plan, trace)) if not refused(wrong, model, trace)]
    assert not passed, passed


def refused(plan: Plan, model, trace: Trace) -> bool:
    """Whether a plan does not fit the model, or its types do not fit."""
    try:
        return has_faults(trace, resolve(plan, model))
    except PlanError:
        return True


def additions(plan: Plan, trace: Trace) -> Iterator[tuple[str, Plan]]:
    """Plans with a sum too many: of outputs and of gradients."""
    for rule in plan.rules:
        if rule.style == "rowwise":
            yield f"{rule.pattern} is summed twice", with_rule(plan, PlanRule(rule.pattern, "all_reduce"))
        if rule.style == "colwise" and "*" in rule.pattern and matches(rule.pattern, trace.module_classes):
            yield f"{rule.pattern} is entered twice", with_rule(plan, PlanRule(rule.pattern, "enter_input"))
    ruled = {rule.pattern.rpartition(".")[0] for rule in plan.rules} | {rule.pattern for rule in plan.rules}
    used = {number for op in trace.ops for number in op.inputs()}
    for parameter in trace.parameters:
        path = parameter.name.rpartition(".")[0]
        is_norm = path.endswith("norm") and len(parameter.shape) == 1 and parameter.tensor in used
        if is_norm and not any(path.split(".")[-1] == name.split(".")[-1] for name in ruled):
            rule = PlanRule(parameter.name, "replicated_with_grad_allreduce")
            yield f"the gradient of {parameter.name} is summed", with_rule(plan, rule)


def with_rule(plan: Plan, rule: PlanRule) -> Plan:
    return replace(plan, rules=(*plan.rules, rule))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_style_fits_and_does_not_without_the_style(name: str) -> None:
    style = STYLES[name]
    assert faults_of(name, example_of(style)) == []
    assert faults_of(name, spoiled(style, example_of(style)))


def faults_of(name: str, plan: Plan) -> list[TypeFault]:
    model = model_of(STYLES[name])
    return type_faults(record(model, inputs_of(STYLES[name]), name), resolve(plan, model))


@pytest.mark.parametrize(
    ("name", "rules", "said"),
    [
        ("rowwise", "rule up colwise dim=0\nrule down.weight shard dim=1", "output 0 is a term of a sum on each rank"),
        (
            "rowwise",
            "rule up colwise dim=0\nrule down rowwise dim=1\nrule down all_reduce",
            "sums what is no sum over the",
        ),
        ("colwise", "rule up colwise", "down: addmm: an operand is whole along an axis along which another is cut"),
        ("enter_output", "rule query colwise\nrule down rowwise", "key.weight: its gradient is a term on each rank"),
        (
            "enter_output",
            "rule query colwise\nrule key enter_output\nrule down rowwise\nrule down enter_output",
            "down: enter_output sums a gradient that is whole",
        ),
        (
            "packed_colwise",
            "rule gate_up colwise\nrule down rowwise",
            "gate_up: addmm: a weight is cut through the blocks",
        ),
    ],
)
def test_the_fault_is_named(name: str, rules: str, said: str) -> None:
    assert any(said in str(fault) for fault in faults_of(name, Plan.parse(f"plan x\n{rules}\n")))
