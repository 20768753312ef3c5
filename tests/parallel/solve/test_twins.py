"""Layers that the forward did not use are split like similar layers, if these are all split in the same way."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


class Expert(nn.Module):
    def __init__(self, wide=16):
        super().__init__()
        self.up, self.down = nn.Linear(8, wide, bias=False), nn.Linear(wide, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Normed(Expert):
    """A norm over the whole width between its layers."""

    def forward(self, x):
        return self.down(torch.relu(self.up(x)).softmax(-1))


class Gated(Expert):
    """One weight more in some instances, with which it computes otherwise."""

    def __init__(self, gated=False):
        super().__init__()
        self.gate = nn.Linear(8, 16, bias=False) if gated else None

    def forward(self, x):
        return self.down(torch.relu(self.up(x)) * self.gate(x)) if self.gate else super().forward(x)


class Mixture(nn.Module):
    """Some of several experts run; ``experts`` are all, ``used`` the numbers of those that run."""

    def __init__(self, experts, used):
        super().__init__()
        torch.manual_seed(0)
        self.experts, self.used, self.norm = nn.ModuleList(make() for make in experts), used, nn.LayerNorm(8)

    def forward(self, x):
        normed = self.norm(x)
        return self.norm(x + sum(self.experts[number](normed) for number in self.used))


def derived(experts, used, ranks=2):
    model, x = Mixture(experts, used).eval(), {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}
    plan = plan_of_trace(record(model, x, "mixture"), gather=False)
    for numbers in (used, range(len(experts))):
        model.used = numbers
        verdict = check_model_on_threads(model, plan, x, ranks)
        assert verdict.passed, verdict.reason
    return {rule.pattern: rule.style for rule in plan.rules}


PAIR = {"up": "colwise", "down": "rowwise"}


def test_experts_without_a_token_are_split_as_those_with_one():
    assert derived([Expert] * 3, (0, 2)) == {f"experts.*.{name}": style for name, style in PAIR.items()}


@pytest.mark.parametrize(
    "kind, odd",
    [(Expert, Normed), (Expert, lambda: Expert(24)), (Gated, lambda: Gated(True))],
    ids=["another class", "another shape", "another weight"],
)
def test_what_is_like_no_layer_that_ran_stays_whole(kind, odd):
    wanted = {f"experts.{number}.{name}": style for number in (0, 2) for name, style in PAIR.items()}
    assert derived([kind, odd, kind], (0, 2)) == wanted


def test_layers_alike_that_stay_whole_are_an_example_too():
    assert derived([Normed] * 3, (0, 2)) == {}


class WithBiases(Expert):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)


def test_a_bias_is_split_with_its_weight():
    assert derived([WithBiases] * 3, (0, 2)) == {f"experts.*.{name}": style for name, style in PAIR.items()}


class Lists(nn.Module):
    """The layers of each expert in two lists, and perhaps a weight that is split by itself in a third."""

    def __init__(self, used, bias, scaled):
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.ModuleList(nn.Linear(8, 16, bias=bias) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(16, 8) for _ in range(3))
        self.scales = nn.ParameterList(torch.randn(16) for _ in range(3 if scaled else 0))
        self.used, self.norm = used, nn.LayerNorm(8)

    def forward(self, x):
        normed = self.norm(x)
        for number in self.used:
            inner = torch.relu(self.up[number](normed))
            x = x + self.down[number](inner * self.scales[number] if self.scales else inner)
        return self.norm(x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_layers_of_one_expert_in_several_lists_are_split_together(bias, scaled):
    model, x = Lists((0, 2), bias, scaled).eval(), {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}
    plan = plan_of_trace(record(model, x, "lists"), gather=False)
    model.used = range(3)
    verdict = check_model_on_threads(model, plan, x, 2)
    assert verdict.passed, verdict.reason
    assert ("up.*" in {rule.pattern for rule in plan.rules}) != scaled


class Scaled(Expert):
    """A weight whose split is no style of a layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(16))

    def forward(self, x):
        return self.down(torch.relu(self.up(x)) * self.scale)


def test_a_module_of_which_a_weight_is_split_by_itself_stays_whole():
    """Its attributes and borders are not known, since it did not run."""
    found = derived([Scaled] * 3, (0, 2))
    assert set(found) == {f"experts.{number}.{name}" for number in (0, 2) for name in ("up", "down", "scale")}


class Numbered(nn.Module):
    """Layers with numbers in their names, beside a weight that is split by itself."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.scale = nn.Linear(8, 16), nn.Linear(16, 8), nn.Parameter(torch.randn(16))

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)) * self.scale)


def test_numbers_in_names_of_layers_are_no_places_in_a_list():
    found = derived([Numbered] * 3, (0, 2))
    assert set(found) == {f"experts.{number}.{name}" for number in (0, 2) for name in ("fc1", "fc2", "scale")}
