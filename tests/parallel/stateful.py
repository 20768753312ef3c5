"""Models whose results hold state or values of a rank's own heads, in other forms than a cache of the library."""

from __future__ import annotations

import collections

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from tests.parallel.deceptive import DeceptiveConfig, _Model


class Memory:
    """State of an own class."""

    def __init__(self, pairs):
        self.pairs = pairs


class Slots:
    """A value without a dictionary."""

    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = config.hidden_size // config.num_attention_heads
        self.q, self.k, self.v, self.o = (nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4))
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x, past):
        shape = (*x.shape[:2], -1, self.width)
        normed = self.norm(x)
        q, k, v = (layer(normed).view(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return x + self.o(y.transpose(1, 2).flatten(2)), (k, v)


class StatefulModel(_Model):
    """``form`` says how the state comes back; ``extra`` asks for a further output."""

    def __init__(self, config: DeceptiveConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Attention(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.post_init()

    def forward(self, input_ids, past_key_values=None, form="tuple", extra="", use_cache=True, return_dict=True):
        pairs = past_key_values.pairs if isinstance(past_key_values, Memory) else past_key_values
        x, kept = self.embed(input_ids), []
        for layer, past in zip(self.layers, pairs or [None] * len(self.layers)):
            x, pair = layer(x, past)
            kept.append(pair)
        state = Memory(kept) if form == "object" else kept if form == "list" else tuple(kept)
        hidden = self.norm(x)
        if form == "apart" and dist.is_initialized() and dist.get_rank() == 1:
            hidden = hidden + 1
        if form == "nameless":
            return hidden, state
        found = BaseModelOutputWithPast(last_hidden_state=hidden, past_key_values=state if use_cache else None)
        values = [v.transpose(1, 2).flatten(2) for _, v in kept]
        if extra == "values":
            found["hidden_states"] = tuple(values)
        if extra == "value":
            found["value"] = values[0]
        if extra == "length":
            found["length"] = values[0].shape[-1]
        if extra == "size":
            found["more"] = {"size": values[0].shape}
        if extra == "number":
            found["number"] = values[0].sum().item()
        if extra == "array":
            found["array"] = values[0].numpy()
        if extra == "slots":
            found["slots"] = Slots(values[0])
        if extra == "queue":
            found["queue"] = collections.deque(values)
        if extra == "plain":
            found["plain"] = (x.shape, len(kept), hidden.shape[-1], x.numpy(), True, 1e300, 1 << 80, "text")
        if extra == "zeros":
            found["zeros"] = torch.zeros_like(values[0])
        return found
