"""Models as people write them for themselves: ordinary ``__init__`` of configurations, own names, own attention.

Each has a twin without the line that keeps its attention whole.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig


class OwnConfig(PreTrainedConfig):
    """Shrunk by the parameters of its ``__init__``: at these sizes no model is small."""

    model_type = "own"

    def __init__(self, vocab_size=32000, width=2048, n_heads=16, kv_heads=4, depth=12, ffn_size=8192, **kwargs):
        self.vocab_size, self.width, self.depth, self.ffn_size = vocab_size, width, depth, ffn_size
        self.n_heads, self.kv_heads = n_heads, kv_heads
        super().__init__(**kwargs)


class NeedyConfig(OwnConfig):
    model_type = "own_needy"

    def __init__(self, width, n_heads=8, **kwargs):
        super().__init__(width=width, n_heads=n_heads, **kwargs)


class NestedConfig(PreTrainedConfig):
    """One configuration within another, as such classes hand them on."""

    model_type = "own_nested"

    def __init__(self, inner=None, **kwargs):
        self.inner = OwnConfig(**inner) if isinstance(inner, dict) else OwnConfig()
        super().__init__(**kwargs)


class Attention(nn.Module):
    """Sizes are read from the input, so that the attention cannot be cut."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.head_dim = config.n_heads, config.width // config.n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(config.width, config.width) for _ in range(4))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, self.heads, c // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(b, t, -1))


class CuredAttention(Attention):
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, self.heads, self.head_dim).transpose(1, 2) for f in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(b, t, -1))


class Fused(nn.Module):
    """One projection for three, cut by a size that was read from the input."""

    def __init__(self, config):
        super().__init__()
        self.head_dim = config.width // config.n_heads
        self.qkv, self.o = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)

    def cut(self, x):
        return self.qkv(x).split(x.shape[-1], dim=-1)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, -1, self.head_dim).transpose(1, 2) for part in self.cut(x))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(b, t, -1))


class CuredFused(Fused):
    def cut(self, x):
        return self.qkv(x).chunk(3, dim=-1)


class Slopes(nn.Module):
    """A number for each head in a buffer; its constructor reads values, so that it does not run without data."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.head_dim = config.n_heads, config.width // config.n_heads
        self.q, self.kv = nn.Linear(config.width, config.width), nn.Linear(config.width, 2 * config.width)
        self.o = nn.Linear(config.width, config.width)
        slopes = torch.tensor([0.5 ** (i + 1) for i in range(config.n_heads)])
        self.largest = float(slopes[0])
        self.keep(slopes)

    def keep(self, slopes):
        self.register_buffer("slopes", slopes, persistent=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, (k, v) = self.q(x), self.kv(x).chunk(2, dim=-1)
        q, k, v = (part.view(b, t, self.heads, self.head_dim) for part in (q, k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(self.head_dim)
        position = torch.arange(t)
        scores = scores - self.slopes[None, :, None, None] * (position[:, None] - position[None, :]).abs()
        scores = scores.masked_fill(position[None, :] > position[:, None], -math.inf)
        out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
        return self.o(out.reshape(b, t, self.heads * self.head_dim))


class CuredSlopes(Slopes):
    def keep(self, slopes):
        self.slopes = nn.Parameter(slopes, requires_grad=False)


class Grouped(nn.Module):
    """Queries, keys and values of a group side by side; the number in a group is a ratio of two attributes."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.groups, self.head_dim = config.n_heads, config.kv_heads, config.width // config.n_heads
        self.qkv = nn.Linear(config.width, (self.heads + 2 * self.groups) * self.head_dim)
        self.o = nn.Linear(config.width, config.width)

    def forward(self, x):
        b, t, _ = x.shape
        times = self.heads // self.groups
        qkv = self.qkv(x).view(b, t, self.groups, times + 2, self.head_dim)
        q, k, v = qkv[..., :-2, :], qkv[..., [-2], :], qkv[..., [-1], :]
        k, v = torch.broadcast_to(k, q.shape), torch.broadcast_to(v, q.shape)
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(b, t, self.heads * self.head_dim))


class OfTorch(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.inner = nn.MultiheadAttention(config.width, config.n_heads, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


class Block(nn.Module):
    def __init__(self, attention, config):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(config.width), attention(config)
        self.up, self.down = nn.Linear(config.width, config.ffn_size), nn.Linear(config.ffn_size, config.width)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(self.norm(x))))


class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    attention: type[nn.Module] = CuredAttention

    def __init__(self, config):
        super().__init__(config)
        sizes = getattr(config, "inner", config)
        self.embed = nn.Embedding(sizes.vocab_size, sizes.width)
        self.layers = nn.ModuleList(Block(self.attention, sizes) for _ in range(sizes.depth))
        self.post_init()

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return x


class NestedModel(OwnModel):
    config_class = NestedConfig


class NeedyModel(OwnModel):
    config_class = NeedyConfig


class WrittenModel(OwnModel):
    attention = Attention


class FusedModel(OwnModel):
    attention = Fused


class CuredFusedModel(OwnModel):
    attention = CuredFused


class SlopesModel(OwnModel):
    attention = Slopes


class CuredSlopesModel(OwnModel):
    attention = CuredSlopes


class GroupedModel(OwnModel):
    attention = Grouped


class OfTorchModel(OwnModel):
    attention = OfTorch


class PlainNet(nn.Module):
    """No configuration at all."""

    def __init__(self, width=32, heads=4, depth=2):
        super().__init__()
        sizes = OwnConfig(vocab_size=40, width=width, n_heads=heads, ffn_size=4 * width)
        self.embed = nn.Embedding(40, width)
        self.layers = nn.ModuleList(Block(CuredAttention, sizes) for _ in range(depth))

    def forward(self, ids, scale=1.0):
        x = self.embed(ids) * scale
        for layer in self.layers:
            x = layer(x)
        return x
