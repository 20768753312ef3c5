"""Candidate axes of small models: their groups, the reasons against some, and the choice."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modular_converter.parallel.solve.choose import Groups, Place, _separate, candidate_axes, choose
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.trace.record import record


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_groups_are_what_is_joined(pairs):
    groups, sets = Groups(), [{one} for one in range(10)]
    for left, right in pairs:
        groups.join(left, right)
        both = next(one for one in sets if left in one) | next(one for one in sets if right in one)
        sets = [one for one in sets if not one & both] + [both]
    assert all(groups.find(item) == min(one) for one in sets for item in one)


@pytest.mark.parametrize(
    "left, right, separate",
    [
        ("0.0[0].0", "0.0[1].0", True),
        ("0.0[0].0", "0.0[0].1", False),
        ("0.0[0]", "0.0[0]", False),
        ("0.0", "0.1", False),
        ("0.0[0].0", "0.1", False),
        ("0.0[0].0", "0.1[1].0", False),
        ("0.0[0].0[0].1", "0.0[0].0[1].1", True),
    ],
)
def test_segments_of_one_axis_are_separate(left, right, separate):
    assert _separate(Place(0, 0, left), Place(0, 0, right)) is separate
    assert not _separate(Place(0, 0, left), Place(0, 1, right))


class Block(nn.Module):
    def __init__(self, wide, between):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, wide), nn.Linear(wide, 8), nn.LayerNorm(8)
        self.scale, self.between = nn.Parameter(torch.randn(wide)), between

    def forward(self, x):
        return x + self.down(self.between(self, torch.tanh(self.up(self.norm(x)))))


def followed(between, wide=(16, 16)):
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(one, between) for one in wide], nn.LayerNorm(8))
    trace = record(model, {"input": torch.randn(2, 8)}, "blocks")
    return trace, follow(trace)


def names_of(trace, candidate):
    return {trace.parameters[place.parameter].name for place in candidate.places}


def test_the_same_place_of_each_layer_is_one_candidate():
    trace, flow = followed(lambda m, h: h * m.scale)
    wide = next(one for one in candidate_axes(flow) if "0.up.bias" in names_of(trace, one))
    each = {f"{layer}.{name}" for layer in (0, 1) for name in ("up.weight", "up.bias", "down.weight", "scale")}
    assert names_of(trace, wide) == each and len(wide.leaves) == 2 and wide.reasons == []
    assert wide.elements == 2 * (8 * 16 + 16 + 16 * 8 + 16)
    choice = choose(flow)
    assert choice.accepted == [wide] and choice.chosen == wide.leaves and choice.attributes == set()
    (hidden,) = (one for one, _ in choice.refused if "0.norm.weight" in names_of(trace, one))
    assert hidden.reasons[0] == "an input: input" and "a norm over its full width" in hidden.reasons
    assert (
        hidden.ops["a norm over its full width"] >= 0
        and [reason for one, reason in choice.refused if one is hidden] == hidden.reasons[:1]
    )


@pytest.mark.parametrize(
    "between, wide, reason",
    [
        (lambda m, h: h.softmax(-1), 16, "a softmax over it"),
        (lambda m, h: h, 18, "its length 18 does not divide by 4"),
        (lambda m, h: h[..., torch.arange(16)], 16, "rows are looked up in it"),
        (lambda m, h: (h @ h.mT) @ h, 16, "a product of two activations sums over it"),
    ],
)
def test_what_speaks_against_an_axis_is_said(between, wide, reason):
    trace, flow = followed(between, (wide, wide))
    choice = choose(flow)
    assert choice.accepted == [] and choice.chosen == set()
    said = {name: reason for one, reason in choice.refused for name in names_of(trace, one) if "up.bias" in name}
    assert said == {"0.up.bias": reason, "1.up.bias": reason}


def test_what_is_banned_is_refused_with_its_words():
    trace, flow = followed(lambda m, h: h)
    leaf = next(iter(choose(flow).chosen))
    choice = choose(flow, {leaf: "because"})
    assert choice.accepted == [] and "because" in [reason for _, reason in choice.refused]


class Alone(nn.Module):
    """Two layers of which nothing sums over the outputs, and a matrix between two axes that both could be sharded."""

    def __init__(self, square):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.last = nn.Linear(8, 16), nn.Linear(16, 32, bias=False), nn.Linear(32, 8)
        self.square = square

    def forward(self, x):
        return self.last(torch.tanh(self.between(torch.tanh(self.first(x))))) if self.square else self.first(x).exp()


def test_one_axis_of_a_matrix_is_taken_the_one_that_splits_more():
    trace = record(Alone(True), {"x": torch.randn(2, 8)}, "alone")
    choice = choose(follow(trace))
    (taken,) = choice.accepted
    assert names_of(trace, taken) == {"between.weight", "last.weight"}
    assert "another axis of the same parameter is sharded" in [reason for _, reason in choice.refused]


def test_an_axis_that_no_weight_sums_over_is_no_candidate():
    trace = record(Alone(False), {"x": torch.randn(2, 8)}, "alone")
    choice = choose(follow(trace))
    reasons = {reason for one, reason in choice.refused if "first.bias" in names_of(trace, one)}
    assert choice.accepted == [] and reasons == {"an output of the model"}
    assert all(
        "no weight sums over it" in one.reasons
        for one in candidate_axes(follow(trace))
        if "first.bias" in names_of(trace, one)
    )


class Two(nn.Module):
    """Two pairs of layers, of which the larger one is viewed at a number of the code."""

    def __init__(self, large, little):
        super().__init__()
        torch.manual_seed(0)
        self.large, self.little, self.norm = Block(32, large), Block(16, little), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.little(self.large(x)))


def fixed(m, h):
    return h.view(*h.shape[:-1], 4, m.scale.numel() // 4).relu().flatten(-2)


@pytest.mark.parametrize("large, little, taken", [(True, False, "little"), (False, True, "large")])
def test_what_does_not_fit_alone_is_given_up(large, little, taken):
    free = lambda m, h: h  # noqa: E731
    trace = record(Two(fixed if large else free, fixed if little else free), {"x": torch.randn(2, 8)}, "two")
    choice = choose(follow(trace))
    (kept,) = choice.accepted
    assert all(name.startswith(taken) for name in names_of(trace, kept))
    assert [r for one, r in choice.refused if "up.bias" in str(names_of(trace, one))][-1].startswith(
        "a size in a view in"
    )


class Fused(nn.Module):
    """Two blocks of one matrix, of which a softmax runs over the first, beside a pair of layers that nothing hinders."""

    def __init__(self):
        super().__init__()
        self.both, self.first, self.second = nn.Linear(8, 64), nn.Linear(32, 8), nn.Linear(32, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        a, b = self.both(x).split(32, -1)
        return self.first(a.softmax(-1)) + self.second(torch.tanh(b)) + self.down(torch.tanh(self.up(x)))


def test_a_fused_matrix_with_a_block_that_must_stay_whole_stays_whole():
    trace = record(Fused(), {"x": torch.randn(2, 8)}, "fused")
    choice = choose(follow(trace))
    (taken,) = choice.accepted
    assert names_of(trace, taken) == {"up.weight", "up.bias", "down.weight"}
    block = {"both.weight", "both.bias", "second.weight"}
    said = [reason for one, reason in choice.refused if names_of(trace, one) == block]
    assert said == ["a part of the fused both.weight must stay whole"]
