"""Attention whose heads are treated alike up to a number in the code: a small instance has fewer heads than the number.

Heads behind ``FIRST`` look back ``WINDOW`` positions. Each class computes the number of these heads in another way.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.parallel.deceptive import DeceptiveConfig
from tests.parallel.numbers_of_shapes import _Stack


FIRST, WINDOW, FAR = 16, 64, 100000


class _Attention(nn.Module):
    def __init__(self, config: DeceptiveConfig):
        super().__init__()
        self.width = config.hidden_size // config.num_attention_heads
        self.q, self.k, self.v, self.o = (nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4))
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (layer(x).view(b, s, -1, self.width).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = self.seen(q @ k.transpose(-1, -2) / self.width**0.5)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))

    def seen(self, scores):
        """The scores, with those of positions that a head does not see at a large negative number."""
        return looking_back(scores, *self.parted(scores.shape[1]))

    def parted(self, heads):
        """The number of the first heads and of the others."""
        raise NotImplementedError


def looking_back(scores, first, others):
    window = torch.cat([torch.full((first,), FAR), torch.full((others,), WINDOW)])
    places = torch.arange(scores.shape[-1])
    return scores.masked_fill((places[:, None] - places) >= window[:, None, None], -1e9)


class ByMin(_Attention):
    def parted(self, heads):
        return min(heads, FIRST), max(0, heads - FIRST)


class BySorted(_Attention):
    def parted(self, heads):
        first = sorted([FIRST, heads])[0]
        return first, heads - first


class ByBranch(_Attention):
    def parted(self, heads):
        return (FIRST, heads - FIRST) if heads > FIRST else (heads, 0)


class ByTruth(_Attention):
    def parted(self, heads):
        return (FIRST, heads - FIRST) if heads // (FIRST + 1) else (heads, 0)


class ByDivmod(_Attention):
    def parted(self, heads):
        whole, rest = divmod(heads, FIRST)
        return (heads, 0) if whole == 0 or (whole == 1 and rest == 0) else (FIRST, heads - FIRST)


class ByRange(_Attention):
    def parted(self, heads):
        first = len(range(heads)[:FIRST])
        return first, heads - first


class ByLoop(_Attention):
    def parted(self, heads):
        first = sum(1 for head in range(heads) if head < FIRST)
        return first, heads - first


class ByFloat(_Attention):
    def parted(self, heads):
        return (FIRST, heads - FIRST) if math.log2(heads) > 4.5 else (heads, 0)


class ByPlainInt(_Attention):
    def parted(self, heads):
        plain = int(float(heads))
        return (FIRST, plain - FIRST) if plain > FIRST else (plain, 0)


class ByTable(_Attention):
    def parted(self, heads):
        first = {32: FIRST, 64: FIRST}.get(heads, heads)
        return first, heads - first


class ByRound(_Attention):
    def parted(self, heads):
        first = min(round(heads / FIRST), 1) * FIRST or heads
        first = heads if heads <= FIRST else first
        return first, heads - first


class ByClamp(_Attention):
    def parted(self, heads):
        first = int(torch.tensor(heads).clamp(max=FIRST))
        return first, heads - first


class BySlice(_Attention):
    def seen(self, scores):
        first, others = scores[:, :FIRST], scores[:, FIRST:]
        return torch.cat([first, looking_back(others, 0, others.shape[1])], 1) if others.shape[1] else first


class ByPositions(_Attention):
    """The number of the heads bounds the window."""

    def seen(self, scores):
        length = scores.shape[-1]
        window, places = min(length, 2 * scores.shape[1]), torch.arange(length)
        return scores.masked_fill((places[:, None] - places) >= window, -1e9)


class BeyondLength(_Attention):
    """Another kind of code beyond a length."""

    def seen(self, scores):
        if scores.shape[-1] <= WINDOW:
            return scores
        return looking_back(scores, min(scores.shape[1], FIRST), max(0, scores.shape[1] - FIRST))


class ByRemainder(_Attention):
    def parted(self, heads):
        return (FIRST, heads - FIRST) if heads % 32 == 0 else (heads, 0)


ALL = {kind.__name__: kind for kind in _Attention.__subclasses__()}


def stack_of(kind: type[nn.Module]) -> type[_Stack]:
    return type(f"{kind.__name__}Stack", (_Stack,), {"block": kind, "__module__": __name__})


STACKS = {name: stack_of(kind) for name, kind in ALL.items()}
globals().update({made.__name__: made for made in STACKS.values()})
