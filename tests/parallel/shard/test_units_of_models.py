"""No cut goes through a head: the units of a model are read off its own forward, for any number of ranks."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.shard.shares import (
    _Count,
    _members,
    _outermost,
    plan_for_ranks,
    unknown_cut,
    with_units,
    without_units,
)
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record


HIDDEN, WIDTH = 16, 4


class Attention(nn.Module):
    def __init__(self, heads, groups, layout, width=WIDTH):
        super().__init__()
        self.heads, self.groups, self.layout, self.width = heads, groups, layout, width
        if layout == "separate":
            self.q = nn.Linear(HIDDEN, heads * self.width)
            self.k, self.v = (nn.Linear(HIDDEN, groups * self.width) for _ in range(2))
        else:
            self.qkv = nn.Linear(HIDDEN, (heads + 2 * groups) * self.width)
        self.o = nn.Linear(heads * self.width, HIDDEN)

    def project(self, x):
        shape = (*x.shape[:-1], -1, self.width)
        if self.layout == "separate":
            return [one(x).view(shape) for one in (self.q, self.k, self.v)]
        if self.layout == "interleaved":
            return self.qkv(x).view(*x.shape[:-1], -1, 3 * self.width).chunk(3, -1)
        return [one.view(shape) for one in self.qkv(x).chunk(3, -1)]

    def forward(self, x):
        q, k, v = (one.transpose(1, 2) for one in self.project(x))
        if self.heads != self.groups:
            k, v = (one.repeat_interleave(self.heads // self.groups, 1) for one in (k, v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Model(nn.Module):
    """Two layers of attention and of a gated feed-forward of a given width."""

    def __init__(self, heads=6, groups=None, layout="separate", wide=24, vocabulary=10):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm = nn.Embedding(vocabulary, HIDDEN), nn.LayerNorm(HIDDEN)
        self.attentions = nn.ModuleList([Attention(heads, groups or heads, layout) for _ in range(2)])
        self.ups = nn.ModuleList([nn.Linear(HIDDEN, wide) for _ in range(2)])
        self.downs = nn.ModuleList([nn.Linear(wide, HIDDEN) for _ in range(2)])
        self.head = nn.Linear(HIDDEN, vocabulary)

    def forward(self, ids):
        x = self.embed(ids)
        for attention, up, down in zip(self.attentions, self.ups, self.downs):
            x = x + attention(self.norm(x))
            x = x + down(F.gelu(up(self.norm(x))))
        return self.head(self.norm(x))


INPUTS = {"ids": torch.arange(10).view(2, 5)}
SEPARATE = "rule attentions.*.q colwise\nrule attentions.*.k colwise\nrule attentions.*.v colwise\n"
FUSED = {
    "separate": SEPARATE,
    "contiguous": "rule attentions.*.qkv packed_colwise parts=1:1:1\n",
    "interleaved": "rule attentions.*.qkv colwise\n",
}
REST = """rule attentions.*.o rowwise
rule ups.* colwise
rule downs.* rowwise
rule embed embedding_rowwise
rule head colwise_gather_output
"""


def plan_of(layout="separate"):
    shrinking = "attribute attentions.*:heads\nattribute attentions.*:groups\n"
    return Plan.parse(f"plan x\n{FUSED[layout]}{REST}{shrinking if layout == 'separate' else ''}")


def units_of(model, ranks, layout="separate"):
    found = with_units(plan_of(layout), model, record(model, INPUTS), ranks)
    return found, {rule.pattern: (rule.units, rule.members) for rule in found.rules if rule.units is not None}


@pytest.mark.parametrize("layout", FUSED)
@pytest.mark.parametrize("ranks", [3, 5])
def test_heads_stay_together_on_any_number_of_ranks(layout, ranks):
    model = Model(layout=layout).eval()
    found, units = units_of(model, ranks, layout)
    if ranks == 5:
        names = ["qkv"] if layout != "separate" else ["q", "k", "v"]
        assert units == {
            **{f"attentions.*.{name}": (6, 0) for name in [*names, "o"]},
            **dict.fromkeys(("ups.*", "downs.*"), (24, 0)),
        }
    else:
        assert units == {}, "equal shares need no units"
    verdict = check_model_on_threads(model, plan_of(layout), INPUTS, ranks)
    assert verdict.passed, verdict.reason
    assert without_units(found) == plan_of(layout)


def test_cuts_through_heads_are_wrong():
    """So that the test above could fail."""
    model, plan = Model().eval(), plan_of()
    cut = tuple(dataclasses.replace(rule, units=8) if "attentions" in rule.pattern else rule for rule in plan.rules)
    assert not check_model_on_threads(model, dataclasses.replace(plan, rules=cut), INPUTS, 5).passed


@pytest.mark.parametrize("wide, ranks, units", [(48, 5, 48), (96, 5, 6), (80, 5, None), (96, 7, 96), (160, 7, 10)])
def test_widths_are_cut_at_multiples_that_products_like(wide, ranks, units):
    """Of 16 entries, where that leaves as many units as there are ranks."""
    model = Model(heads=5 if ranks == 5 else 7, wide=wide)
    _, found = units_of(model, ranks)
    assert found == ({} if units is None else dict.fromkeys(("ups.*", "downs.*"), (units, 0)))


@pytest.mark.parametrize("heads, groups, ranks, members", [(6, 2, 3, 3), (6, 2, 6, 3), (15, 3, 6, 5), (4, 2, 3, 2)])
def test_more_ranks_than_key_value_heads_hold_copies_of_them(heads, groups, ranks, members):
    model = Model(heads=heads, groups=groups, wide=12 * ranks).eval()
    found, units = units_of(model, ranks)
    wanted = {"q": members, "k": 1, "v": 1, "o": members}
    assert units == {f"attentions.*.{name}": (groups, number) for name, number in wanted.items()}
    verdict = check_model_on_threads(model, found, INPUTS, ranks)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("heads, groups, ranks", [(6, 2, 7), (3, 1, 4)])
def test_ranks_without_a_head_are_refused(heads, groups, ranks):
    model = Model(heads=heads, groups=groups, wide=12 * ranks).eval()
    found, units = units_of(model, ranks)
    assert all(number == 0 for _, number in units.values())
    assert "units are too few for" in check_model_on_threads(model, found, INPUTS, ranks).reason


def test_layers_of_other_sizes_have_rules_of_their_own():
    model = Model()
    model.ups[1], model.downs[1] = nn.Linear(HIDDEN, 28), nn.Linear(28, HIDDEN)
    found, units = units_of(model, 5)
    assert {name: one for name, one in units.items() if "attentions" not in name} == {
        "ups.0": (24, 0), "downs.0": (24, 0), "ups.1": (7, 0), "downs.1": (7, 0),
    }  # fmt: skip
    assert check_model_on_threads(model.eval(), found, INPUTS, 5).passed


@pytest.mark.parametrize("heads", [(5, 10), (10, 5)])
def test_layers_of_one_shape_may_have_other_heads(heads):
    model = Model(wide=15).eval()
    model.attentions = nn.ModuleList([Attention(number, number, "separate", 40 // number) for number in heads])
    found, units = units_of(model, 3)
    for layer, number in enumerate(heads):
        assert {units[f"attentions.{layer}.{name}"] for name in "qkvo"} == {(number, 0)}
    verdict = check_model_on_threads(model, found, INPUTS, 3)
    assert verdict.passed, verdict.reason


def test_only_an_axis_that_nobody_has_taken_apart_is_unknown():
    model, plan = Model(), plan_of()
    found, _ = units_of(model, 5)
    assert unknown_cut(resolve(plan, model).pieces, 3) == "", "equal shares"
    assert unknown_cut(resolve(plan, model).pieces, 5) == "attentions.0.q.weight"
    assert unknown_cut(resolve(found, model).pieces, 5) == "", "a vocabulary is cut anywhere"


def test_a_plan_of_a_small_instance_gets_units_where_its_axes_do_not_divide_by_the_ranks():
    model, plan = Model(heads=4), plan_of()
    assert plan_for_ranks(plan, model, INPUTS, 2) is plan and plan_for_ranks(plan, model, INPUTS, 4) is plan
    assert plan_for_ranks(plan, model, INPUTS, 3) == with_units(plan, model, record(model, INPUTS), 3) != plan


class Trained(nn.Module):
    """A forward that fails without gradients, as under recording."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(HIDDEN, 2048)

    def forward(self, x):
        return torch.autograd.grad(self.up(x).sum(), self.up.weight)[0]


def test_a_model_that_cannot_be_recorded_keeps_its_plan():
    plan = Plan.parse("plan x\nrule up colwise_gather_output\n")
    assert plan_for_ranks(plan, Trained(), {"x": torch.randn(2, HIDDEN)}, 3) is plan


def lengths_of(make, blocks):
    """The outermost factor of an axis: its length, and which of its factors it is (-1 for several)."""
    flow = Flow(Trace("x", (), (), (), (), (), ()))
    seq = make(flow.axes)
    found = _outermost(flow, seq, blocks)
    numbers = [atom.number for atom in flow.axes.leaves(seq)]
    return found and (found[0], numbers.index(found[1]) if found[1] in numbers else found[1])


def joined(axes, *parts):
    return axes.concatenate(list(parts))


def shared(axes):
    heads = axes.leaf(6)
    return joined(axes, heads + axes.leaf(4), heads + axes.leaf(4))


@pytest.mark.parametrize(
    "make, blocks, found",
    [
        (lambda axes: axes.leaf(6) + axes.leaf(4), 1, (6, 0)),
        (lambda axes: axes.leaf(1), 1, None),
        (shared, 2, (6, 0)),
        (lambda axes: joined(axes, axes.leaf(6) + axes.leaf(4), axes.leaf(6) + axes.leaf(2)), 2, (6, -1)),
        (lambda axes: joined(axes, axes.leaf(6), axes.leaf(5)), 2, None),
        (lambda axes: joined(axes, axes.leaf(6), axes.leaf(1)), 2, None),
        (lambda axes: joined(axes, axes.leaf(6), axes.leaf(6)), 3, None),
        (lambda axes: joined(axes, axes.leaf(6), axes.leaf(6)) + axes.leaf(4), 2, (6, -1)),
        (lambda axes: axes.leaf(2) + axes.leaf(6), 2, (6, 1)),
        (lambda axes: axes.leaf(2) + axes.leaf(6), 3, None),
        (lambda axes: axes.leaf(2), 2, None),
        (lambda axes: axes.leaf(2) + axes.leaf(3) + axes.leaf(5), 6, (5, 2)),
        (lambda axes: joined(axes, axes.leaf(2) + axes.leaf(6), axes.leaf(2) + axes.leaf(6)), 4, (6, -1)),
    ],
)
def test_the_outermost_factor_of_each_block(make, blocks, found):
    assert lengths_of(make, blocks) == found


Q, K = "a.q.weight", "a.k.weight"


@pytest.mark.parametrize(
    "counts, ranks, found",
    [
        ({Q: (2, 12, 5), K: (2, 4, 6)}, 4, {Q: 3, K: 1}),
        ({Q: (2, 12, 5), K: (2, 4, 6), "a.k.bias": (2, 4, 6), "a.q.bias": (2, 12, 5)}, 6, {Q: 3, K: 1, "a.k.bias": 1, "a.q.bias": 3}),
        ({"a.q_weight": (2, 12, 5), "a.k_weight": (2, 4, 6)}, 4, {"a.q_weight": 3, "a.k_weight": 1}),
        ({Q: (2, 12, 5), "b.k.weight": (2, 4, 6)}, 4, {}),  # of two modules
        ({Q: (2, 12, 5), K: (4, 4, 6)}, 5, {}),  # of two numbers
        ({Q: (2, 12, 5), K: (2, 4, 6)}, 2, {}),  # as many ranks as heads
        ({Q: (2, 12, 5), K: (2, 5, 6)}, 4, {}),  # no ratio
        ({Q: (2, 12, 5), K: (2, 4, 6)}, 7, {}),  # a rank would have no member
        ({Q: (2, 12, 5)}, 4, {}),
        ({Q: (3, 12, 5), K: (3, 4, 6)}, 6, {}),  # either could be outermost
        ({Q: (3, 12, 5), K: (3, 4, 5)}, 6, {Q: 3, K: 1}),
        ({Q: (3, 12, -1), K: (3, 4, -1)}, 6, {}),
        ({Q: (2, 12, 5), K: (2, 4, 6), "a.s": (2, 3, 7)}, 4, {Q: 3, K: 1, "a.s": 3}),
        ({Q: (2, 12, 5), K: (2, 4, 6), "a.s.weight": (2, 3, 7)}, 4, {Q: 3, K: 1, "a.s.weight": 3}),
        ({Q: (2, 12, 5), K: (2, 4, 6), "a.s.weight": (2, 2, 7)}, 4, {}),
    ],
)  # fmt: skip
def test_members_are_those_of_a_clear_ratio(counts, ranks, found):
    assert _members({name: _Count(*count) for name, count in counts.items()}, ranks) == found
