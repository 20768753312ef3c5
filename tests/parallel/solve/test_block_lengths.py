"""The blocks of a fused axis in the words of the code that cuts it: a plan of one size holds for models of others."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


class Inner(nn.Module):
    """A fused layer whose output is cut into parts, which are put together again for the layer behind it."""

    def __init__(self, sizes, way):
        super().__init__()
        self.long, self.short, self.blocks = sizes
        self.sizes = list(sizes)
        total, out, self.way = way
        self.fused, self.out = nn.Linear(16, total(self)), nn.Linear(out(self), 16)

    def forward(self, x):
        return self.out(self.way(self, self.fused(x)))


class Model(nn.Module):
    def __init__(self, sizes, way):
        super().__init__()
        torch.manual_seed(0)
        self.long, self.short, self.blocks = sizes
        self.layers, self.norm = nn.ModuleList([Inner(sizes, way) for _ in range(2)]), nn.LayerNorm(16)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(x + layer(self.norm(x)))
        return x


def summed(parts):
    """Parts of one length as one, each with another factor, so that none can stand for another."""
    return sum((number + 1) * torch.tanh(part) for number, part in enumerate(parts))


def of_two(m):
    return m.long + m.short


def cut_in_three(m, y, first, second):
    return joined(y[..., :first], y[..., first:second], y[..., second:])


def joined(*parts):
    return torch.cat([torch.tanh((number + 1) * part) for number, part in enumerate(parts)], -1)


def of_equal_blocks(cut):
    return lambda m: m.blocks * m.short, lambda m: m.short, cut


# Way -> length of the fused layer, width behind it, what the code does, and the parts; None where a plan cannot say them.
WAYS = {
    "chunks": ((lambda m: 2 * m.long, lambda m: m.long, lambda m, y: summed(y.chunk(2, -1))), (1, 1)),
    "three chunks": ((lambda m: 3 * m.long, lambda m: m.long, lambda m, y: summed(y.chunk(3, -1))), (1, 1, 1)),
    "one split size": ((lambda m: 2 * m.long, lambda m: m.long, lambda m, y: summed(y.split(m.long, -1))), (1, 1)),
    "a number in a view": (
        (lambda m: 3 * m.long, lambda m: m.long, lambda m, y: summed(y.view(*y.shape[:-1], 3, -1).unbind(-2))), (1, 1, 1),
    ),
    "a number in an unflatten": (
        (lambda m: 3 * m.long, lambda m: m.long, lambda m, y: summed(y.unflatten(-1, (3, -1)).unbind(-2))), (1, 1, 1),
    ),
    "two split sizes": ((of_two, of_two, lambda m, y: joined(*y.split([m.long, m.short], -1))), ("long", "short")),
    "a split size and the rest": ((of_two, of_two, lambda m, y: joined(y[..., : m.long], y[..., m.long :])), ("long", "rest")),
    "sizes of a list": (
        (of_two, of_two, lambda m, y: joined(*y.split([m.sizes[0], m.sizes[1]], -1))), ("sizes[0]", "sizes[1]"),
    ),
    "expressions": (
        (lambda m: 2 * m.long + m.short * m.blocks, lambda m: 2 * m.long + m.short * m.blocks,
         lambda m, y: joined(*y.split([2 * m.long, m.short * m.blocks], -1))), ("2*long", "short*blocks"),
    ),
    "sums and quotients": (
        (lambda m: m.long // 2 + (m.long + m.short) * 2, lambda m: m.long // 2 + (m.long + m.short) * 2,
         lambda m, y: joined(*y.split([m.long // 2, (m.long + m.short) * 2], -1))), ("long//2", "(long+short)*2"),
    ),
    "a border added to another": (
        (lambda m: 2 * m.long + m.short, lambda m: 2 * m.long + m.short, lambda m, y: cut_in_three(m, y, m.long, m.long + m.short)),
        ("long", "short", "rest"),
    ),
    "a border that is another expression": (
        (lambda m: 4 * m.long, lambda m: 4 * m.long, lambda m, y: cut_in_three(m, y, m.long, 3 * m.long)),
        ("long", "3*long-long", "rest"),
    ),
    "two parts that are cut by numbers": (
        (lambda m: m.short + 12, lambda m: m.short + 12, lambda m, y: joined(*y.split([m.short, 8, 4], -1))), None,
    ),
    "a number of blocks": (of_equal_blocks(lambda m, y: summed_blocks(y.view(*y.shape[:-1], m.blocks, m.short))), ("blocks",)),
    "the length of a block": (
        of_equal_blocks(lambda m, y: summed_blocks(y.view(*y.shape[:-1], -1, m.short))), ("length//short",),
    ),
    "blocks of a computed length": (
        of_equal_blocks(lambda m, y: summed_blocks(y.view(*y.shape[:-1], -1, m.short * 2 // 2))), ("length//(short*2//2)",),
    ),
    "blocks cut by a list": (of_equal_blocks(lambda m, y: summed(y.split([m.short] * m.blocks, -1))), ("short",) * 4),
    "numbers of the code": ((lambda m: 24, lambda m: 24, lambda m, y: joined(*y.split([16, 8], -1))), None),
    "as many blocks as the code says": (
        (lambda m: 4 * m.short, lambda m: m.short, lambda m, y: summed_blocks(y.view(*y.shape[:-1], 4, -1))), (1, 1, 1, 1),
    ),
}  # fmt: skip


# Plans of these ways are of four blocks, and refuse another number.
OF_FOUR, REFUSED = ("blocks cut by a list",), "its parts do not add up"


def summed_blocks(y):
    """The sum of the blocks, each with another factor that has a softmax over the blocks in it."""
    return (y.softmax(-2) * y).sum(-2)


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_of_one_size_holds_for_others(way):
    *made, parts = WAYS[way]
    x = {"x": torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))}
    model = Model((16, 8, 4), *made)
    plan = plan_of_trace(record(model, x, "blocks"), gather=False)
    rules = {rule.pattern: rule for rule in plan.rules}
    if parts is None:
        assert not rules
        return
    assert rules["layers.*.fused"].parts == parts and rules["layers.*.out"].style.endswith("rowwise")
    for sizes in ((16, 8, 4), (16, 16, 4), (24, 8, 4), (16, 8, 8)):
        verdict = check_model_on_threads(Model(sizes, *made), plan, x, 2)
        assert verdict.passed or way in OF_FOUR and sizes[2] == 8 and REFUSED in verdict.reason, (sizes, verdict)
