"""The rules of a plan: numbers become stars exactly where all parts of the pattern have the same rule."""

import dataclasses

import pytest
import torch
from torch import nn

from modular_converter.parallel import derive
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import matches
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.write_rules import _generic, _patterns, generic_attributes
from modular_converter.parallel.trace.graph import Parameter, Trace
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


def trace_of(*paths, classes=None):
    """A trace with layers at some paths."""
    parameters = tuple(Parameter((f"{path}.weight",), (8, 8), number, "Linear") for number, path in enumerate(paths))
    known = classes or dict.fromkeys(paths, "Linear")
    return Trace("x", (), (), (), (), parameters, (), known)


def test_patterns_go_from_general_to_exact():
    assert _patterns("a.0.b.1.c.2") == ["a.*.b.*.c.*", "a.*.b.*.c.2", "a.*.b.1.c.2", "a.0.b.1.c.2"]
    assert _patterns("a.0.b.1") == ["a.*.b.*", "a.*.b.1", "a.0.b.1"]
    assert _patterns("a.0.b") == ["a.*.b", "a.0.b"] and _patterns("a") == ["a"]


LAYERS = [f"h.{layer}.ffn.{number}" for layer in range(2) for number in range(2)]


@pytest.mark.parametrize(
    "styles, wanted",
    [
        (dict.fromkeys(LAYERS, "colwise"), {"h.*.ffn.*": "colwise"}),
        ({path: "rowwise" if path.endswith("1") else "colwise" for path in LAYERS}, {"h.*.ffn.0": "colwise", "h.*.ffn.1": "rowwise"}),
        ({path: "colwise" for path in LAYERS if path.endswith("1")}, {"h.*.ffn.1": "colwise"}),
        ({path: "colwise" for path in LAYERS if path.startswith("h.1")}, {"h.1.ffn.0": "colwise", "h.1.ffn.1": "colwise"}),
        ({"h.0.ffn.0": "colwise"}, {"h.0.ffn.0": "colwise"}),
        ({f"{path}.weight": "shard" for path in LAYERS}, {"h.*.ffn.*.weight": "shard"}),
    ],
)  # fmt: skip
def test_a_star_stands_where_all_are_alike(styles, wanted):
    trace = trace_of(*LAYERS)
    rules = _generic(trace, [PlanRule(path, style) for path, style in styles.items()])
    assert {rule.pattern: rule.style for rule in rules} == wanted
    known = [*trace.module_classes, *(parameter.name for parameter in trace.parameters)]
    for rule in rules:
        assert all(styles.get(path) == rule.style for path in matches(rule.pattern, known))


@pytest.mark.parametrize("change", [{"dim": 1}, {"parts": (1, 1)}, {"style": "shard"}])
def test_rules_that_differ_in_anything_are_not_alike(change):
    first, second = (PlanRule(f"h.{number}", "colwise", 0) for number in range(2))
    assert [one.pattern for one in _generic(trace_of("h.0", "h.1"), [first, second])] == ["h.*"]
    both = [first, dataclasses.replace(second, **change)]
    assert _generic(trace_of("h.0", "h.1"), both) == both


def test_integers_are_as_general_as_the_modules_of_their_class_allow():
    classes = {"h.0.attn": "A", "h.1.attn": "A", "h.0.mlp": "B", "h.1.mlp": "B", "other.0": "A"}
    trace = trace_of(classes=classes)

    def found(*attributes, **more):
        return generic_attributes(dataclasses.replace(trace, module_classes=classes | more), set(attributes))

    every = [("h.0.attn", "heads"), ("h.1.attn", "heads")]
    assert found(*every) == ["h.*.attn:heads"]
    assert found(every[0]) == ["h.0.attn:heads"]
    assert found(*every, ("h.0.attn", "groups")) == ["h.*.attn:heads", "h.0.attn:groups"]
    assert found(*every, **{"h.2.attn": "C"}) == ["h.0.attn:heads", "h.1.attn:heads"], (
        "another class has other integers"
    )
    assert found(*every, **{"h.2.attn": "A"}) == ["h.0.attn:heads", "h.1.attn:heads"], "one of them stays"
    assert found(("h.0.mlp", "width"), ("h.1.mlp", "width"), ("", "heads")) == [":heads", "h.*.mlp:width"]


class Odd(nn.Module):
    """Layers whose weights or biases no style of a module says."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)
        self.bare, self.extra = nn.Parameter(torch.randn(16, 8)), nn.Parameter(torch.randn(16))
        self.way = way

    def forward(self, x):
        normed = self.norm(torch.tanh(x))
        return self.norm(x + WAYS[self.way][0](self, normed))


WAYS = {
    "layers": (lambda m, x: m.down(torch.relu(m.up(x))), {"up": ("colwise", None), "down": ("rowwise", None)}),
    "a bias that is used alone": (
        lambda m, x: m.down(torch.relu(nn.functional.linear(x, m.up.weight)) * m.up.bias),
        {"up": ("colwise", None), "down": ("rowwise", None)},
    ),
    "a bias without its weight": (
        lambda m, x: m.down(torch.relu(nn.functional.linear(x, m.bare)) * m.up.bias),
        {"bare": ("colwise", None), "up.bias": ("shard", 0), "down": ("rowwise", None)},
    ),
    "a bias that is sharded behind a row": (
        lambda m, x: torch.relu(m.up(x)) @ m.down.weight.T * m.down.bias, {"up": ("colwise", None), "down": ("rowwise", None)},
    ),
    "bare weights": (
        lambda m, x: m.down(torch.relu(x @ m.bare.T + m.extra)),
        {"bare": ("colwise", None), "extra": ("shard", 0), "down": ("rowwise", None)},
    ),
    "bare weights the other way round": (
        lambda m, x: torch.relu(m.up(x)) @ m.bare, {"up": ("colwise", None), "bare": ("rowwise", 0)},
    ),
    "a factor of its own": (
        lambda m, x: m.down(torch.relu(m.up(x)) * m.extra),
        {"up": ("colwise", None), "extra": ("shard", 0), "down": ("rowwise", None)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_rule_names_a_layer_where_a_style_says_how_all_of_it_is_split(way):
    model, x = Odd(way).eval(), {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}
    plan = plan_of_trace(record(model, x, "odd"), gather=False)
    assert {rule.pattern: (rule.style, rule.dim) for rule in plan.rules} == WAYS[way][1]
    verdict = check_model_on_threads(model, plan, x, 2)
    assert verdict.passed, verdict.reason


class Experts(nn.Module):
    """A model that is itself a module of experts, which no rule can name."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Parameter(torch.randn(4, 16, 8)), nn.Parameter(torch.randn(4, 8, 16))

    def forward(self, x):
        hidden = torch.einsum("bte,hed->bthd", x, self.first).relu()
        return torch.einsum("bthd,hde->bte", hidden, self.last)


def test_each_derived_plan_can_be_read_back():
    plan = derive(Experts(), (torch.randn(4, 6, 16),)).plan
    assert Plan.parse(str(plan)) == plan
