"""Modules of the tests' own with a chain of layers, and some without one, with example inputs."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Chain(nn.Module):
    """A list of layers between two others."""

    def __init__(self, block=Block):
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList(block() for _ in range(4))

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.leave(x)


class Scored(Chain):
    """A forward that returns its own loss, without a name."""

    def forward(self, x, labels=None):
        found = super().forward(x)
        return found if labels is None else (found, (found - labels).pow(2).mean())


class Unscored(Chain):
    """A forward that takes labels and returns no loss."""

    def forward(self, x, labels=None):
        return super().forward(x) - (0 if labels is None else labels)


class Centred(Chain):
    """A row's result depends on the other rows."""

    config = {"width": 16}  # none of transformers

    def forward(self, x):
        found = super().forward(x)
        return found - found.mean(0)


class Counting(Chain):
    """A forward that counts its calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


class Chosen(Chain):
    """A parameter of integers."""

    def __init__(self):
        super().__init__()
        self.order = nn.Parameter(torch.arange(7, -1, -1), requires_grad=False)

    def forward(self, x):
        return super().forward(x[:, self.order])


class WritingBlock(nn.Module):
    """A layer that begins by writing to its input, as a ReLU in place does."""

    def __init__(self):
        super().__init__()
        self.act, self.linear = nn.ReLU(inplace=True), nn.Linear(16, 16)

    def forward(self, x):
        return self.linear(self.act(x))


class Around(Chain):
    """Code around the layers reads what they have written to, and writes to their results."""

    def __init__(self):
        super().__init__(WritingBlock)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            found = layer(x)
            found.mul_(0.5)
            x = x + found
        return self.leave(x)


class Deep(Chain):
    """A result of each layer, of which a loss is made."""

    def forward(self, x):
        x, results = self.enter(x), []
        for layer in self.layers:
            x = layer(x)
            results.append(x)
        return {"logits": self.leave(x), "results": results}


class Sloped(Chain):
    """A tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.slopes = torch.linspace(0.5, 1.0, 16)

    def forward(self, x):
        x = self.enter(x) * self.slopes.to(x.dtype)
        for layer in self.layers:
            x = layer(x)
        return self.leave(x)


class AgainBlock(Block):
    """A layer that the backward computes again, by its own code."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


class AgainInside(Block):
    def forward(self, x):
        def run(x):
            return self.down(torch.relu(self.up(x)))

        return x + checkpoint(run, x, use_reentrant=False)


class AgainNamed(Block):
    """A module whose code does not call it ``self``."""

    def forward(this, x):
        def run(x):
            return nn.functional.linear(torch.relu(this.up(x)), this.down.weight, this.down.bias)

        return x + checkpoint(run, x, use_reentrant=False)


class AddingBlock(nn.Module):
    """A layer whose result is its input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x.add_(torch.tanh(self.linear(x.clone())))


class Numbered(Chain):
    """A tensor made without a device."""

    def forward(self, x):
        return super().forward(x + torch.arange(8) * 0.1)


class Handing(nn.Module):
    """A forward that hands its arguments on."""

    def __init__(self):
        super().__init__()
        self.inner = Chain()

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


class HandingMixed(Centred):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


class HandingHeir(Chain):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


class TupleBlock(Block):
    def forward(self, x, extra, scale=1.0):
        y = super().forward(x) * scale
        return y, extra + y.mean(-1, keepdim=True), None


class Tuples(Chain):
    """Layers that return tuples, a mask that may be None, and a mapping as the result."""

    def __init__(self):
        super().__init__(TupleBlock)

    def forward(self, x, mask=None):
        hidden = self.enter(x)
        extra = torch.zeros_like(hidden[..., :1])
        for layer in self.layers:
            hidden, extra, _ = layer(hidden, extra, scale=0.5)
        if mask is not None:
            hidden = hidden * mask
        return {"logits": self.leave(hidden), "extra": extra}


class Inner(nn.Module):
    """A Sequential of Sequentials, and of layers without weights, which run first, too."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(8, 16), nn.Sequential(nn.ReLU(), nn.Linear(16, 16)), nn.Tanh(), nn.Linear(16, 3)
        )

    def forward(self, x, *, doubled=False):
        return self.body(x) * 2 if doubled else self.body(x)


class Tied(nn.Module):
    """Ids, torch's own layers, and an embedding that is the head."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(11, 16), nn.Linear(16, 11)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0) for _ in range(3)
        )
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Parts(nn.Module):
    """No list of layers."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


class Again(Chain):
    """A list of layers that runs twice."""

    def forward(self, x):
        x = self.enter(x)
        for layer in (*self.layers, *self.layers):
            x = layer(x)
        return self.leave(x)


class Any(Chain):
    """Inputs without names."""

    def forward(self, *inputs, scale=1.0):
        return super().forward(sum(inputs) * scale)


class InOrder(Chain):
    def forward(self, x, mask=None, /):
        return super().forward(x if mask is None else x * mask)


def sequential():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def rows(number=8):
    return torch.randn(number, 8, generator=torch.Generator().manual_seed(1))


def ids(number=8):
    return torch.randint(0, 11, (number, 6), generator=torch.Generator().manual_seed(2))


# Name -> (a function that makes the module, its example inputs in order).
CHAINS = {
    "chain": (Chain, lambda: (rows(),)),
    "tuples": (Tuples, lambda: (rows(), torch.ones(8, 1))),
    "inner": (Inner, lambda: (rows(),)),
    "sequential": (sequential, lambda: (rows(),)),
    "tied": (Tied, lambda: (ids(),)),
    "around": (Around, lambda: (rows(),)),
    "deep": (Deep, lambda: (rows(),)),
    "sloped": (Sloped, lambda: (rows(),)),
    "again": (lambda: Chain(AgainBlock), lambda: (rows(),)),
    "again inside": (lambda: Chain(AgainInside), lambda: (rows(),)),
    "again named": (lambda: Chain(AgainNamed), lambda: (rows(),)),
    "pairs": (lambda: Chain(WritingBlock), lambda: (rows(),)),
    "numbered": (Numbered, lambda: (rows(),)),
    "handing": (Handing, lambda: (rows(),)),
    "handing heir": (HandingHeir, lambda: (rows(),)),
    "any": (Any, lambda: (rows(), rows().sigmoid())),
    "in order": (InOrder, lambda: (rows(), rows().sigmoid())),
}


def made(name):
    """The module with the same weights in each process, and its inputs."""
    torch.manual_seed(0)
    make, inputs = CHAINS[name]
    return make(), inputs()


def leading(output):
    """The tensor of a result that a loss is made of."""
    return output["logits"] if isinstance(output, dict) else output


def loss(output, target):
    deep = output.get("results", ()) if isinstance(output, dict) else ()
    return (leading(output) - target).square().mean() + 0.1 * sum(one.square().mean() for one in deep)
