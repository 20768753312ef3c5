"""Each style by its own example: right with its rule, refused without; and a new style is one record."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.emit import inexpressible_for_library, to_library, torch_text
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.cost import calls, collectives
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles import STYLES, Style, style_of
from modular_converter.parallel.styles.forward import on_first
from modular_converter.parallel.styles.layout import ROWWISE, Enters
from modular_converter.parallel.tables.summary import rows
from modular_converter.parallel.trace.record import record
from tests.parallel.styles.examples import EXAMPLES


def model_of(style):
    names = {"torch": torch, "nn": nn, "F": F}
    exec(EXAMPLES[style.name].source, names)
    torch.manual_seed(3)
    return names["Model"]()


def inputs_of(style):
    shape, below = EXAMPLES[style.name].inputs, EXAMPLES[style.name].below
    return {"x": torch.randint(below, shape) if below else torch.randn(shape)}


def plan_of(style):
    return Plan.parse(f"plan example\n{EXAMPLES[style.name].plan}\n")


def spoiled(style, plan):
    """The plan with the rules of a style made plain shares, or left out where they are that, or of a module."""
    changed = []
    for rule in plan.rules:
        if rule.style != style.name:
            changed.append(rule)
        elif style.layout.acts and style.layout.cuts:
            dim = rule.dim if rule.dim is not None else style.layout.cut.dim(2)
            changed.append(PlanRule(f"{rule.pattern}.weight", "shard", dim, rule.parts))
    return replace(plan, rules=tuple(changed))


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", STYLES)
def test_the_example_of_a_style_holds(name, ranks):
    style = STYLES[name]
    plan = plan_of(style)
    assert any(rule.style == name for rule in plan.rules), "the example must show its style"
    verdict = check_model_on_threads(model_of(style), plan, inputs_of(style), ranks)
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", STYLES)
def test_the_example_of_a_style_is_refused_without_it(name):
    style = STYLES[name]
    assert not check_model_on_threads(model_of(style), spoiled(style, plan_of(style)), inputs_of(style), 2).passed


@pytest.mark.parametrize("name", STYLES)
def test_facts_agree(name):
    style = STYLES[name]
    assert style_of(style.layout, style.packed) == name
    if style.layout.enters is not Enters.TAIL and not inexpressible_for_library(plan_of(style)):
        assert from_library("example", to_library(plan_of(style))) == plan_of(style)


@pytest.mark.parametrize("name", [name for name in STYLES if STYLES[name].layout.leaves])
def test_collectives_are_counted(name):
    style = STYLES[name]
    model, inputs, plan = model_of(style), inputs_of(style), plan_of(style)
    flow = follow(record(model, inputs, "example"))
    number = next(number for rule, number in collectives(flow, plan).items() if rule.style == name)
    assert number == (2 if name == "embedding_rowwise" else 1)  # each use of a tied weight


NEW = Style("rowwise_by_another_name", ROWWISE, "as rowwise", library=False)


def test_a_new_style_is_one_record(monkeypatch):
    """Registered, it is parsed, printed, resolved, priced, applied, shown and written down, without another change."""
    with pytest.raises(PlanFormatError, match="unknown style 'rowwise_by_another_name'"):
        PlanRule("down", NEW.name)
    monkeypatch.setitem(STYLES, NEW.name, NEW)
    plan = Plan.parse("plan new\nrule up colwise\nrule down rowwise_by_another_name\n")
    assert Plan.parse(str(plan)) == plan == Plan.from_json(plan.to_json())
    model, inputs = nn.Sequential(), {"input": torch.randn(3, 8)}
    model.add_module("up", nn.Linear(8, 16))
    model.add_module("down", nn.Linear(16, 8))
    assert resolve(plan, model).pieces["down.weight"].roles == {ROWWISE}
    assert calls(follow(record(model, inputs, "new")), plan) == 1
    assert [row.communication for row in rows(plan, model, 2, 4)] == ["", "all-reduce"]
    assert '"down": RowwiseParallel()' in torch_text(plan, model)
    assert list(map(str, inexpressible_for_library(plan))) == ["down: style rowwise_by_another_name is ours"]
    assert check_model_on_threads(model, plan, inputs, 2).passed
    monkeypatch.setitem(STYLES, NEW.name, replace(NEW, layout=replace(ROWWISE, leaves=None)))
    assert not check_model_on_threads(model, plan, inputs, 2).passed, "without its sum it is wrong"


def test_only_the_first_of_several_outputs_is_changed():
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    assert on_first(torch.neg, one).tolist() == [-1.0]
    changed, *rest = on_first(torch.neg, (one, two, three))
    assert changed.tolist() == [-1.0] and rest[0] is two and rest[1] is three
