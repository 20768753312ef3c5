"""A small model with the conveniences of models that people write: methods, properties and plain attributes beside `forward`.

Ranks import it by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


SOFTCAP = 0.0
HALF = {"of": [0.5]}


class HandyConfig(PretrainedConfig):
    model_type = "handy"

    def __init__(
        self, vocab_size=304, hidden_size=64, num_heads=4, num_layers=2, max_positions=32, dropout=0.0, **more
    ):
        self.vocab_size, self.hidden_size, self.num_heads, self.num_layers = (
            vocab_size,
            hidden_size,
            num_heads,
            num_layers,
        )
        self.max_positions, self.dropout = max_positions, dropout
        super().__init__(**more)


@dataclass
class Sizes:
    width: int
    norm: float
    names: list[str]


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads, self.head_dim = config.num_heads, config.hidden_size // config.num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4))
        self.drop = nn.Dropout(config.dropout)
        self.scale = self.head_dim**-0.5
        self.last = None

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (p(x).view(batch, length, -1, self.head_dim).transpose(1, 2) for p in (self.q, self.k, self.v))
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = ((q @ k.transpose(-1, -2)) * self.scale).masked_fill(mask, float("-inf")).softmax(-1)
        self.last = weights
        return self.o((self.drop(weights) @ v).transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up, self.down = (
            nn.Linear(config.hidden_size, 4 * config.hidden_size),
            nn.Linear(4 * config.hidden_size, config.hidden_size),
        )
        self.act = "gelu"
        self.options = {"gain": 1.0, "shifts": [0.0]}

    def forward(self, x):
        x = getattr(F, self.act)(self.up(x))
        return self.options["gain"] * self.down(x) + sum(self.options["shifts"])

    def width(self):
        return self.up.weight.shape[0]

    @property
    def bias_norm(self):
        return self.up.bias.norm().item()


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(config.hidden_size), nn.LayerNorm(config.hidden_size)
        self.attn, self.mlp = Attention(config), Mlp(config)
        self.drop = nn.Dropout(config.dropout)
        self.gain = 1.0

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.gain * self.drop(self.mlp(self.n2(x)))


class Handy(PreTrainedModel):
    config_class = HandyConfig

    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.max_positions, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("shift", torch.zeros(config.hidden_size))
        self.temperature = 1.0
        self.calls, self.aux, self.sizes, self.history = 0, None, None, []
        self.post_init()

    def get_input_embeddings(self):
        return self.wte

    def forward(self, input_ids, labels=None, said=""):
        x = self.hidden(input_ids)
        self.aux, self.calls = x.pow(2).mean(), self.calls + 1
        self.sizes = (x.shape[-1], len(self.layers))
        self.seen += 1
        logits = self.head(x) / self.temperature
        if SOFTCAP:
            logits = SOFTCAP * torch.tanh(logits / SOFTCAP)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if said:
            return {"logits": logits, "said": f"{self.layers[0].mlp.up.weight.shape[0]} wide", "wide": self.is_wide()}
        return CausalLMOutput(loss=loss, logits=logits)

    def hidden(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device)) + self.shift
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def is_wide(self):
        return self.layers[0].mlp.up.weight.shape[0] >= 4 * self.config.hidden_size

    def get_num_params(self, non_embedding=True):
        n = sum(p.numel() for p in self.parameters())
        return n - self.wpe.weight.numel() if non_embedding else n

    def first_bias(self):
        return self.layers[0].mlp.up.bias

    def summary(self):
        return f"up {tuple(self.layers[0].mlp.up.weight.shape)} norm {self.layers[0].mlp.up.weight.norm().item():.4f}"

    def zero_bias(self):
        return not self.layers[0].mlp.up.bias.any()

    def l2(self):
        return sum(p.pow(2).sum() for p in self.parameters())

    @property
    def largest(self):
        return max(float(p.abs().max()) for p in self.parameters())

    def facts(self):
        return {
            "heads": [layer.attn.num_heads for layer in self.layers],
            "sizes": Sizes(
                self.layers[0].mlp.width(), self.layers[0].mlp.bias_norm, [n for n, _ in self.named_parameters()]
            ),
        }

    def rows(self):
        for row in self.layers[0].mlp.up.weight[:2]:
            yield row.sum().item()

    def similar(self, ids):
        vectors = F.normalize(self.wte.weight, dim=-1)
        return vectors[ids] @ vectors.T

    def score(self, input_ids):
        logits = self(input_ids).logits.log_softmax(-1)
        return logits[:, :-1].gather(-1, input_ids[:, 1:, None]).sum().item()

    @torch.no_grad()
    def generate(self, ids, count):
        for _ in range(count):
            ids = torch.cat([ids, self(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
        return ids, self.wte.weight.shape[0]

    def inner(self, x):
        return self.layers[0].mlp.up(x)

    def count(self):
        self.calls += 10
        return self.calls

    def crop(self, length):
        self.wpe.weight = nn.Parameter(self.wpe.weight[:length])


def handy(**sizes):
    torch.manual_seed(0)
    model = Handy(HandyConfig(**sizes)).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.2)
    return model
