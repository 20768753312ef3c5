"""Sums at a module's border, by brute force: where the rule allows one, the outputs of the ranks add up to the whole one."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.solve.follow import follow, sums_at_border
from modular_converter.parallel.trace.record import record


class Inner(nn.Module):
    """A product with a weight that is split along what it sums over, and what is done with it."""

    def __init__(self, after):
        super().__init__()
        torch.manual_seed(0)
        self.row, self.other, self.bias = (nn.Parameter(torch.randn(8, 8)) for _ in range(3))
        self.after = after

    def forward(self, x):
        return self.after(self, x, x @ self.row)


class Outer(nn.Module):
    def __init__(self, after, calls=1):
        super().__init__()
        self.inner, self.calls = Inner(after), calls

    def forward(self, x):
        for _ in range(self.calls):
            x = self.inner(x)
        return x


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
ROWS = torch.tensor([2, 0, 1])
ALLOWED = {
    "as it is": lambda m, x, y: y,
    "twice": lambda m, x, y: 2 * y,
    "turned": lambda m, x, y: y.T.reshape(3, 8)[:, :4],
    "negative": lambda m, x, y: -y,
    "divided": lambda m, x, y: y / 3,
    "weighted": lambda m, x, y: y * x,
    "with zeros": lambda m, x, y: torch.zeros_like(x).index_add(0, ROWS, y),
    "of two": lambda m, x, y: y + (x * 2) @ m.row,
    "from a view of the weight": lambda m, x, y: y + x @ m.row.T.T,
    "through another weight": lambda m, x, y: y @ m.other,
    "hidden": lambda m, x, y: y.masked_fill(x > 0, 0.0),
    "chosen": lambda m, x, y: torch.where(x > 0, y, torch.zeros_like(x)),
    "chosen with a number": lambda m, x, y: torch.where(x > 0, y, 0.0),
    "chosen of two": lambda m, x, y: torch.where(x > 0, y, 2 * y),
    "padded": lambda m, x, y: F.pad(y, (1, 0)),
    "over padded zeros": lambda m, x, y: F.pad(torch.zeros_like(x), (0, 0, 0, 1)).index_add(0, ROWS, y),
    "more of it": lambda m, x, y: torch.add(y, y, alpha=3) - 0,
    "behind each other": lambda m, x, y: torch.cat([y, y * x]),
}
FORBIDDEN = {
    "bent": lambda m, x, y: y.relu(),
    "with a bias": lambda m, x, y: y + m.bias[0],
    "of which one is whole": lambda m, x, y: torch.cat([y, x]),
    "squared": lambda m, x, y: y * y,
    "below": lambda m, x, y: 1 / (y + 100 * y),
    "added to rows": lambda m, x, y: x.index_add(0, ROWS, y),
    "through the weight again": lambda m, x, y: y @ m.row,
    "beside a whole one": lambda m, x, y: (y, x * 2),
    "not given": lambda m, x, y: x * 2,
    "filled": lambda m, x, y: y.masked_fill(x > 0, 1.0),
    "chosen beside a whole one": lambda m, x, y: torch.where(x > 0, y, x),
    "chosen beside a number": lambda m, x, y: torch.where(x > 0, y, 1.0),
    "which chooses": lambda m, x, y: torch.where(y > 0, y, torch.zeros_like(x)),
    "more": lambda m, x, y: y + 1,
    "less": lambda m, x, y: y - 1,
    "padded with ones": lambda m, x, y: F.pad(y, (1, 0), value=1.0),
    "over ones": lambda m, x, y: F.pad(torch.zeros_like(x), (0, 0, 0, 1), value=1.0).index_add(0, ROWS, y),
    "rounded": lambda m, x, y: torch.div(y, x.abs() + 1, rounding_mode="floor"),
}


def allowed(after, calls=1):
    model = Outer(after, calls)
    flow = follow(record(model, {"x": X}, "sums"))
    row = next(p.tensor for p in flow.trace.parameters if p.name == "inner.row")
    return sums_at_border(flow, "inner", {row})


def results(inner, x):
    found = inner(x)
    return found if isinstance(found, tuple) else (found,)


def adds_up(after):
    """Whether the outputs of two ranks, each with half of what the product sums over, add up to the whole ones."""
    whole, total = results(Inner(after), X), None
    for rank in range(2):
        model = Inner(after)
        with torch.no_grad():
            half = model.row.clone()
            half[4 * (1 - rank) : 4 * (2 - rank)] = 0
            model.row.copy_(half)
            found = results(model, X)
        total = found if total is None else tuple(a + b for a, b in zip(total, found))
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(total, whole))


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_adds_up(name):
    assert adds_up(ALLOWED[name]) and allowed(ALLOWED[name])


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_does_not_add_up_is_forbidden(name):
    assert not adds_up(FORBIDDEN[name]) and not allowed(FORBIDDEN[name])


def test_each_call_must_allow_it():
    assert allowed(ALLOWED["twice"], calls=2)
    assert not allowed(lambda m, x, y: y if x.abs().max() < 5 else y.relu(), calls=2)
    flow = follow(record(Outer(ALLOWED["twice"]), {"x": X}, "sums"))
    assert not sums_at_border(flow, "nowhere", set())
