"""Derived plans beyond pairs of layers: vocabularies, gathers, and a reason for each part that stays whole."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.derive import SAVED, Aim, plan_of
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


IDS = torch.arange(10).view(2, 5)


class Words(nn.Module):
    """Embeddings of ids, and layers that are only gathered; ``run`` is what the code does between."""

    def __init__(self, run, vocabulary=16):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(vocabulary, 8), nn.Embedding(16, 8)
        self.head, self.norm = nn.Linear(8, vocabulary, bias=False), nn.LayerNorm(8)
        self.run = run

    def forward(self, ids):
        return self.norm(self.run(self, ids))


def shifted(m, ids):
    found = ids.new_zeros(ids.shape)
    found[:, 1:] = ids[:, :-1].clone()
    return m.words(found)


def tied(m, x):
    return F.linear(x, m.words.weight).softmax(-1).mean(-1, keepdim=True) * x


def with_head(m, x):
    return m.head(x).softmax(-1).mean(-1, keepdim=True) * x


def with_table(m, ids):
    return 2 * m.places(ids)


# Way -> what the code does, the length of the vocabulary, and the styles of embeddings.
VOCABULARIES = {
    "ids": (lambda m, ids: m.words(ids), 16, {"words": "embedding_rowwise"}),
    "a view of ids": (lambda m, ids: m.words(ids.flatten()).view(2, 5, 8), 16, {"words": "embedding_rowwise"}),
    "shifted ids": (shifted, 16, {"words": "embedding_rowwise"}),
    "ids twice": (lambda m, ids: m.words(ids) + m.words(ids[:, :1]), 16, {"words": "embedding_rowwise"}),
    "computed ids": (lambda m, ids: m.words(ids * 2 % 16), 16, {}),
    "positions": (lambda m, ids: m.words(ids) + m.places(torch.arange(5)), 16, {"words": "embedding_rowwise"}),
    "ids and computed ids": (lambda m, ids: m.words(ids) + m.words(ids // 2), 16, {}),
    "a length that does not divide": (lambda m, ids: m.words(ids), 18, {}),
    "a product with the table itself": (lambda m, ids: tied(m, m.words(ids)), 16, {}),
    "a tied head": (
        lambda m, ids: with_head(m, m.words(ids)), 16, {"words": "embedding_rowwise", "head": "colwise_gather_output"},
    ),
    "a tied head of which another module takes the weight": (
        lambda m, ids: tied(m, m.words(ids)) + 0 * with_head(m, m.words(ids)), 16,
        {"words": "embedding_rowwise", "head": "colwise_gather_output"},
    ),
    "two tables and a product": (
        lambda m, ids: tied(m, m.words(ids) + with_table(m, ids)), 16, {},
    ),
    "rows that are multiplied": (lambda m, ids: m.words(ids) * m.words.weight.mean(), 16, {}),
}  # fmt: skip


@pytest.mark.parametrize("way", VOCABULARIES)
def test_rows_of_ids_are_shared_out(way):
    run, length, styles = VOCABULARIES[way]
    model = Words(run, length).eval()
    if "tied" in way:
        model.head.weight = model.words.weight
    if "two tables" in way:
        model.places.weight = model.words.weight
    plan = plan_of_trace(record(model, {"ids": IDS}, "words"))
    assert {rule.pattern: rule.style for rule in plan.rules} == styles
    assert check_model_on_threads(model, plan, {"ids": IDS}, 2).passed


class Gathers(nn.Module):
    """Layers that a norm over their width keeps from pairs."""

    def __init__(self, **widths):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.ModuleDict({n: nn.Linear(8, w) for n, w in widths.items()}) for _ in range(2)])
        self.head, self.small = nn.Linear(8, max(widths.values())), nn.Linear(8, max(widths.values()) - 4)

    def forward(self, x):
        for layer in self.layers:
            for one in layer.values():
                x = x + one(x).softmax(-1).mean(-1, keepdim=True)
        return self.head(x).softmax(-1), self.small(x).softmax(-1)


def test_layers_are_gathered_unless_they_are_small_or_do_not_divide():
    """A fifth of the largest layer is worth a gather; outside of layers, the size of the largest is."""
    model, x = Gathers(large=40, fifth=8, less=4, odd=30), {"x": torch.randn(2, 8)}
    trace = record(model, x, "gathers")
    plan = plan_of_trace(trace)
    gathered = {"layers.*.large", "layers.*.fifth", "head"}
    assert {rule.pattern: rule.style for rule in plan.rules} == dict.fromkeys(gathered, "colwise_gather_output")
    assert check_model_on_threads(model, plan, x, 2).passed
    assert plan_of_trace(trace, gather=False).rules == ()
    assert plan_of_trace(trace, pairs=False).rules == plan.rules
    apart = plan_of(follow(trace), Aim(apart=frozenset({"layers.0.large.weight", "layers.1.large.weight"})))
    assert {rule.pattern for rule in apart.rules} == gathered - {"layers.*.large"}
    assert dict(apart.whole)["layers.*.large.weight"] == SAVED != dict(apart.whole)["layers.*.odd.weight"]


class Elsewhere(nn.Module):
    """Weights that something else than their own layer computes with."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.plain, self.taken, self.both, self.unused = (nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x):
        taken = F.linear(x, self.taken.weight)
        both = self.both(x) + self.both.weight.mean()
        return [found.softmax(-1) for found in (self.plain(x), taken, both)]


def test_only_a_layers_own_products_are_gathered_and_all_else_has_a_reason():
    model, x = Elsewhere(), {"x": torch.randn(2, 8)}
    plan = plan_of_trace(record(model, x, "elsewhere"))
    assert [rule.pattern for rule in plan.rules] == ["plain"]
    assert dict(plan.whole)["unused.weight"] == "not used by the traced forward"
    assert set(dict(plan.whole)) == {"taken.weight", "both.weight", "unused.weight"} and all(dict(plan.whole).values())
    assert check_model_on_threads(model, plan, x, 2).passed


class Conv1D(nn.Module):
    """A layer whose weight is the other way round."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.bias = nn.Parameter(torch.randn(8, 12)), nn.Parameter(torch.randn(12))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


def test_a_weight_that_is_the_other_way_round_is_cut_along_its_columns():
    model, x = nn.Sequential(Conv1D(), nn.Softmax(-1)), {"input": torch.randn(2, 8)}
    plan = plan_of_trace(record(model, x, "turned"))
    assert [(rule.pattern, rule.style, rule.dim) for rule in plan.rules] == [("0", "colwise_gather_output", 1)]
    assert check_model_on_threads(model, plan, x, 2).passed


class Pair(nn.Module):
    def __init__(self, between, width=32):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.between = nn.Linear(8, width), nn.Linear(width, 8), between

    def forward(self, x):
        return self.down(self.between(torch.tanh(self.up(x))))


def test_an_operator_without_a_rule_keeps_its_tensors_whole():
    model, x = (
        Pair(lambda h: torch.special.multigammaln(h.exp() + 9, 2) + torch.fft.fft(h).real),
        {"x": torch.randn(2, 8)},
    )
    trace = record(model, x, "unknown")
    flow = follow(trace)
    assert set(flow.opaque) >= {"_fft_r2c"} and not plan_of_trace(trace, gather=False).rules
    reasons = {mark.reason for mark in flow.axes.marks}
    assert "_fft_r2c (no rule)" in reasons


def test_weights_that_could_be_sharded_are_left_whole_to_save_communication():
    """Not for the reason against another axis of theirs."""
    flow = follow(record(Pair(lambda h: h), {"x": torch.randn(2, 8)}, "pair"))
    plan = plan_of(flow, Aim(gather=False, without=frozenset(choose(flow).chosen)))
    assert not plan.rules
    assert dict(plan.whole) == dict.fromkeys(("up.weight", "up.bias", "down.weight"), SAVED) | {
        "down.bias": "an output of the model"
    }


class Tied(nn.Module):
    """Differences of neighbours in a long axis, beside a pair of layers."""

    def __init__(self):
        super().__init__()
        self.pair, self.long, self.last = Pair(lambda h: h), nn.Linear(8, 2048), nn.Linear(2047, 8)

    def forward(self, x):
        return self.pair(x) + self.last(self.long(x).diff(dim=-1))


def test_axes_that_are_tied_to_themselves_stay_whole():
    trace = record(Tied(), {"x": torch.randn(2, 8)}, "tied")
    flow = follow(trace)
    assert "axes shifted against each other" in {mark.reason for mark in flow.axes.marks}
    assert {rule.pattern: rule.style for rule in plan_of_trace(trace, gather=False).rules} == {
        "pair.up": "colwise",
        "pair.down": "rowwise",
    }


class Thinned(nn.Module):
    """Every fourth entry between two layers."""

    def __init__(self, start):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.norm, self.start = nn.Linear(8, 64), nn.Linear(16, 8), nn.LayerNorm(8), start

    def forward(self, x):
        return self.norm(self.down(torch.tanh(self.up(self.norm(x)))[..., self.start :: 4]))


@pytest.mark.parametrize("start", [0, 3])
def test_entries_at_a_distance_are_shared_out_by_the_groups_that_they_stand_for(start):
    model, x = Thinned(start), {"x": torch.randn(2, 8)}
    plan = plan_of_trace(record(model, x, "thinned"))
    assert {rule.pattern: rule.style for rule in plan.rules} == {"up": "colwise", "down": "rowwise"}
    assert check_model_on_threads(model, plan, x, 2).passed
