"""Where gradients are summed: in each way in which a whole tensor can meet sharded ones, with every rule needed.

A plan holds on ranks, and each of its rules for gradients is one that it does not hold without. Where no rule can say
it, the region stays whole, and no other region does.
"""

import dataclasses

import pytest
import torch
from torch import nn

from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


HIDDEN, HEADS, WIDTH = 16, 4, 8
SUMS = {"replicated_with_grad_allreduce", "enter_output", "mla_kv_a_proj"}


class Pair(nn.ModuleList):
    def __init__(self):
        super().__init__([nn.Linear(HIDDEN, WIDTH), nn.Linear(HIDDEN, WIDTH)])

    def forward(self, x):
        return [one(x) for one in self]


class Block(nn.Module):
    """Heads between two layers, and something small that all of them read; then a pair of layers like in any model."""

    def __init__(self, way):
        super().__init__()
        self.way, self.rank, self.width = way, 12, WIDTH
        self.norm, self.up, self.down = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, HEADS * WIDTH), nn.Linear(32, HIDDEN)
        self.small, self.other = nn.Linear(HIDDEN, WIDTH), nn.Linear(HIDDEN, WIDTH)
        self.both, self.from_rank = nn.Linear(HIDDEN, self.rank + WIDTH), nn.Linear(self.rank, HEADS * WIDTH)
        self.of_head, self.scale = nn.LayerNorm(WIDTH), nn.Parameter(torch.randn(WIDTH))
        self.alike = nn.Linear(HIDDEN, 2 * WIDTH)
        self.nested, self.pair = nn.Sequential(nn.Linear(HIDDEN, WIDTH)), Pair()
        self.into, self.out = nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN)

    def forward(self, x):
        hidden = self.norm(x)
        heads = self.up(hidden).view(*x.shape[:-1], -1, WIDTH)
        more = 0
        found = WAYS[self.way][0](self, hidden, heads)
        if isinstance(found, tuple):
            found, more = found
        x = hidden + self.down(found.softmax(-1).flatten(-2)) + more
        return self.norm(x + self.out(torch.relu(self.into(self.norm(x)))))


def over_heads(small):
    return small[..., None, :]


def parts(m, hidden):
    return m.both(hidden).split([m.rank, WIDTH], -1)


def in_three(m, hidden):
    return m.both(hidden).split([4, WIDTH, WIDTH], -1)


def from_rank(m, latent):
    return m.from_rank(latent).view(*latent.shape[:-1], -1, WIDTH)


def twice(m, hidden):
    return m.small(hidden), m.small(torch.tanh(hidden)).mean(-1, keepdim=True)


def attended(m, hidden, heads):
    keys, values = m.small(hidden)[:, None], m.other(hidden)[:, None]
    return ((heads.transpose(1, 2) @ keys.mT).softmax(-1) @ values).transpose(1, 2)


def sliced(m, heads, both, border):
    return heads * over_heads(both[..., m.rank :]), both[..., :border].mean()


def halves(m, heads, both):
    last = both[..., m.width :].mean()
    return heads * over_heads(both[..., : m.width]), last


def used_whole(m, heads, both):
    first, last = both.split([m.rank, WIDTH], -1)
    return heads * over_heads(last), first.mean() + both.mean()


# Way -> what happens, and the rules for gradients; None where no rule can say it, so that the heads stay whole.
WAYS = {
    "not at all": (lambda m, h, heads: heads, {}),
    "a parameter": (lambda m, h, heads: heads * m.scale, {"scale": "replicated_with_grad_allreduce"}),
    "a parameter through operations": (
        lambda m, h, heads: heads * torch.tanh(m.scale).view(1, -1),
        {"scale": "replicated_with_grad_allreduce"},
    ),
    "a parameter that is used whole too": (lambda m, h, heads: (heads * m.scale, m.scale.mean()), None),
    "a norm of each head": (lambda m, h, heads: m.of_head(heads), {"of_head": "replicated_with_grad_allreduce"}),
    "a module": (lambda m, h, heads: heads * over_heads(m.small(h)), {"small": "enter_output"}),
    "a module through operations": (
        lambda m, h, heads: heads * torch.sigmoid(over_heads(m.small(h)) * 2),
        {"small": "enter_output"},
    ),
    "two modules": (
        lambda m, h, heads: heads * over_heads(m.small(h) + m.other(h)),
        {"small": "enter_output", "other": "enter_output"},
    ),
    "a module behind a module": (
        lambda m, h, heads: heads * over_heads(m.of_head(m.small(h))),
        {"of_head": "enter_output"},
    ),
    "a module and a parameter": (
        lambda m, h, heads: heads * over_heads(m.small(h) * m.scale),
        {"small": "enter_output", "scale": "replicated_with_grad_allreduce"},
    ),
    "a module in two calls": (
        lambda m, h, heads: heads * over_heads(m.small(h)) + over_heads(m.small(torch.tanh(h))),
        {"small": "enter_output"},
    ),
    "a module in a module": (lambda m, h, heads: heads * over_heads(m.nested(h)), {"nested": "enter_output"}),
    "a module with two results": (
        lambda m, h, heads: heads * over_heads(torch.cat(m.pair(h), -1).view(*h.shape[:-1], 2, -1).sum(-2)),
        {"pair.*": "enter_output"},
    ),
    "keys and values of all heads": (attended, {"small": "enter_output", "other": "enter_output"}),
    "without a gradient": (lambda m, h, heads: heads * over_heads(m.small(h).detach()), {}),
    "a comparison": (lambda m, h, heads: heads * over_heads(m.small(h) > 0), {}),
    "a module of which the sum is used whole too": (
        lambda m, h, heads: (heads * over_heads(m.small(h)), m.small(h).mean()),
        None,
    ),
    "a module that is called elsewhere too": (
        lambda m, h, heads: (heads * over_heads(twice(m, h)[0]), twice(m, h)[1]),
        None,
    ),
    "no module": (lambda m, h, heads: heads * over_heads(h[..., :WIDTH]), None),
    "the last part of a module": (
        lambda m, h, heads: heads * over_heads(parts(m, h)[1]) + from_rank(m, parts(m, h)[0]),
        {"both": "mla_kv_a_proj"},
    ),
    "the last part, the first unused": (
        lambda m, h, heads: heads * over_heads(parts(m, h)[1]),
        {"both": "mla_kv_a_proj"},
    ),
    "the last part by slices": (
        lambda m, h, heads: sliced(m, heads, m.both(h), m.rank),
        {"both": "mla_kv_a_proj"},
    ),
    "the last part by slices that leave out entries": (lambda m, h, heads: sliced(m, heads, m.both(h), 8), None),
    "the last part of what is used whole too": (
        lambda m, h, heads: used_whole(m, heads, m.both(h)),
        None,
    ),
    "the last part behind numbers of the code": (
        lambda m, h, heads: heads * over_heads(m.both(h).split([12, 8], -1)[1]),
        None,
    ),
    "the first part": (
        lambda m, h, heads: (heads * over_heads(m.both(h).split([WIDTH, 12], -1)[0]), m.both(h)[..., WIDTH:].mean()),
        None,
    ),
    "the first of two parts alike, which is cut last": (lambda m, h, heads: halves(m, heads, m.alike(h)), None),
    "the last of three parts": (
        lambda m, h, heads: (
            heads * over_heads(in_three(m, h)[2]),
            in_three(m, h)[0].mean() + in_three(m, h)[1].mean(),
        ),
        None,
    ),
}


def model_and_inputs(way):
    torch.manual_seed(3)
    return Block(way).eval(), {"x": torch.randn(2, 5, HIDDEN)}


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_summed_where_whole_tensors_enter(way):
    model, inputs = model_and_inputs(way)
    plan = plan_of_trace(record(model, inputs, "block"), gather=False)
    wanted = WAYS[way][1]
    styles = {rule.pattern: rule.style for rule in plan.rules}
    assert styles["into"] == "colwise" and styles["out"] == "rowwise", "regions that nothing enters are sharded"
    assert {pattern: style for pattern, style in styles.items() if style in SUMS} == (wanted or {})
    assert ("up" in styles, "down" in styles) == (wanted is not None, wanted is not None)
    assert check_model_on_threads(model, plan, inputs, 2).passed
    for left_out in wanted or ():
        less = dataclasses.replace(plan, rules=tuple(rule for rule in plan.rules if rule.pattern != left_out))
        verdict = check_model_on_threads(model, less, inputs, 2)
        assert not verdict.passed and "gradient" in verdict.reason


class Returning(Block):
    """What enters the heads is an output too: its gradient is a sum of one whole part and of partial ones."""

    def forward(self, x):
        hidden = self.norm(x)
        heads, small = self.up(hidden).view(*x.shape[:-1], -1, WIDTH), self.small(hidden)
        x = hidden + self.down((heads * over_heads(small)).softmax(-1).flatten(-2))
        return self.norm(x + self.out(torch.relu(self.into(self.norm(x))))), small


def test_the_gradient_of_an_output_is_not_summed():
    _, inputs = model_and_inputs("a module")
    torch.manual_seed(0)
    model = Returning("a module").eval()
    plan = plan_of_trace(record(model, inputs, "block"), gather=False)
    styles = {rule.pattern: rule.style for rule in plan.rules}
    assert styles["into"] == "colwise" and not SUMS & {*styles.values()}
    assert check_model_on_threads(model, plan, inputs, 2).passed
