"""The cost of a plan: bytes and calls between the ranks, computed by hand, and faults that show without a run."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.cost import cost, covered, static_findings
from modular_converter.parallel.trace.record import record


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.conv = nn.Linear(8, 16), nn.Linear(16, 8), nn.Conv1d(8, 8, 3, padding=1)
        self.unused = nn.Linear(8, 8)

    def forward(self, x):
        return self.conv((x + self.down(torch.relu(self.up(x)))).mT).mT


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.head = nn.ModuleList([Layer(), Layer()]), nn.Linear(8, 12, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


X = {"x": torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))}
PAIRS = "plan x\nrule layers.*.up colwise\nrule layers.*.down rowwise\n"


def found(text):
    model = Model()
    plan, trace = Plan.parse(text), record(model, X, "x")
    return model, plan, trace, resolve(plan, model).pieces


@pytest.mark.parametrize(
    "text, split, matrices, calls",
    [
        ("plan x\n", 0, 0, 0),
        (PAIRS, 2 * (8 * 16 + 16 + 16 * 8), 2 * 2 * 8 * 16, 2),
        (PAIRS + "rule head colwise_gather_output\n", 2 * (8 * 16 + 16 + 16 * 8) + 96, 2 * 2 * 8 * 16, 3),
        ("plan x\nrule layers.0.up colwise\nrule layers.0.down rowwise\n", 8 * 16 + 16 + 16 * 8, 2 * 8 * 16, 1),
    ],
)
def test_bytes_and_collectives_are_counted(text, split, matrices, calls):
    model, plan, trace, pieces = found(text)
    every = sum(parameter.numel() for parameter in model.parameters())
    for ranks in (2, 4):
        costs = cost(trace, plan, pieces, ranks)
        assert (costs.whole, costs.rank) == (4 * every, 4 * (every - split + split // ranks))
        assert (costs.layer_whole, costs.layer_sharded) == (4 * 2 * 2 * 8 * 16, 4 * matrices)
        assert costs.share == costs.layer_sharded / costs.layer_whole
        assert ranks != 2 or costs.sharded == split / every
    assert costs.collectives == calls == check_model_on_threads(model, plan, X, 2).collectives
    assert len(covered(trace, plan)) == {0: 0, 2: 6, 3: 7, 1: 3}[calls]


def test_what_is_wrong_without_running_is_named():
    _, plan, trace, pieces = found(PAIRS)
    large = "large, without a rule, and not listed as whole"
    conv = [f"layers.{i}.conv.weight: {large}" for i in range(2)]
    unused = [f"layers.{i}.unused.weight: {large}" for i in range(2)]
    head = [f"head.weight: {large}"]
    assert sorted(static_findings(trace, plan, pieces, 2)) == sorted(conv + unused + head)
    said = "whole layers.*.conv.weight so\nwhole layers.*.unused.weight so\n"
    _, plan, trace, pieces = found(PAIRS + said)
    assert static_findings(trace, plan, pieces, 2) == head
    too_many = static_findings(trace, plan, pieces, 17)
    assert "layers.0.up.weight: 16 in 1 parts is too short for 17 ranks" in too_many
    _, plan, trace, pieces = found(PAIRS.replace("up colwise", "up packed_colwise parts=1:1"))
    assert "layers.0.up.weight: 16 in 2 parts is too short for 9 ranks" in static_findings(trace, plan, pieces, 9)
    assert not any("layers.0.up" in line for line in static_findings(trace, plan, pieces, 8))


class Sizes(nn.Module):
    """Matrices of 64, 16 and 12 entries: the second is a quarter of the first."""

    def __init__(self):
        super().__init__()
        self.large, self.quarter, self.small = (nn.Parameter(torch.ones(*shape)) for shape in ((8, 8), (8, 2), (6, 2)))

    def forward(self, x):
        return (x @ self.large @ self.quarter).sum() + self.small.sum()


@pytest.mark.parametrize(
    "text, names",
    [
        ("plan x\n", ["large", "quarter"]),
        ("plan x\nwhole large so\n", ["quarter"]),
        ("plan x\nrule large shard\nwhole quarter so\n", []),
    ],
)
def test_weights_from_a_quarter_of_the_largest_on_must_be_spoken_of(text, names):
    model, plan = Sizes(), Plan.parse(text)
    trace = record(model, {"x": torch.ones(3, 8)}, "sizes")
    found = static_findings(trace, plan, resolve(plan, model).pieces, 2)
    assert found == [f"{name}: large, without a rule, and not listed as whole" for name in names]
