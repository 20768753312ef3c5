"""Attentions of one's own whose head ratio shows only when heads are grouped; by default none are."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel


class RatioConfig(PretrainedConfig):
    model_type = "ratio"
    vocab_size: int = 1000
    hidden_size: int = 512
    num_attention_heads: int = 16
    num_key_value_heads: int | None = None
    num_hidden_layers: int = 4

    def __post_init__(self, **rest):
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        super().__post_init__(**rest)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.groups, self.width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        self.heads = config.num_attention_heads
        self.rep = self.heads // self.groups
        self.o = nn.Linear(config.hidden_size, config.hidden_size)

    def attend(self, x, q, k, v):
        q, k, v = (t.view(*x.shape[:2], -1, self.width).transpose(1, 2) for t in (q, k, v))
        if self.rep > 1:
            k, v = self.repeated(k), self.repeated(v)
        weights = (q @ k.mT / self.width**0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class Tiled(Attention):
    """Head i takes key/value head i modulo their number, not i divided by the heads in a group."""

    def __init__(self, config):
        super().__init__(config)
        self.q = nn.Linear(config.hidden_size, self.heads * self.width)
        self.k, self.v = (nn.Linear(config.hidden_size, self.groups * self.width) for _ in range(2))

    def repeated(self, x):
        return x.repeat(1, self.rep, 1, 1)

    def forward(self, x):
        return self.attend(x, self.q(x), self.k(x), self.v(x))


class Fused(Attention):
    """One projection of queries, keys and values, which are a third each only where no heads are grouped."""

    def __init__(self, config):
        super().__init__(config)
        self.qkv = nn.Linear(config.hidden_size, (self.heads + 2 * self.groups) * self.width)

    def repeated(self, x):
        return x.repeat_interleave(self.rep, 1)

    def forward(self, x):
        sizes = [self.heads * self.width, self.groups * self.width, self.groups * self.width]
        return self.attend(x, *self.qkv(x).split(sizes, -1))


class Layer(nn.Module):
    def __init__(self, config, kind):
        super().__init__()
        self.norm, self.a = nn.LayerNorm(config.hidden_size), kind(config)

    def forward(self, x):
        return x + self.a(self.norm(x))


class RatioModel(PreTrainedModel):
    config_class = RatioConfig
    config: RatioConfig
    kind = Attention

    def __init__(self, config):
        super().__init__(config)
        self.emb = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, self.kind) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.post_init()

    def forward(self, input_ids=None):
        x = self.emb(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class TiledModel(RatioModel):
    kind = Tiled


class FusedModel(RatioModel):
    kind = Fused


class UngroupedModel(RatioModel):
    """Grouped heads do not run."""

    class kind(Tiled):
        def repeated(self, x):
            return x


def real(model_class, groups):
    """A model of eight heads that is no small instance."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_attention_heads": 8, "num_hidden_layers": 2, "num_key_value_heads": groups}
    model = model_class(RatioConfig(**sizes)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return model
