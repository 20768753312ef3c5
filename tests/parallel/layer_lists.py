"""Models whose configuration says which layers compute otherwise: by a list, by a number, by a switch a layer."""

from __future__ import annotations

import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from tests.parallel.deceptive import DeceptiveConfig
from tests.parallel.used_otherwise import Otherwise


@strict
class ListedConfig(DeceptiveConfig):
    model_type = "listed"
    layer_types: list[str] | None = None
    first_dense_layers: int = 0
    use_bias: list[bool] | None = None
    norm_kinds: list[str] | None = None

    def __post_init__(self, **kwargs):
        depth = self.num_hidden_layers
        self.layer_types = self.layer_types or ["full_attention"] * depth
        self.use_bias = self.use_bias or [True] * depth
        super().__post_init__(**kwargs)


class Listed(Otherwise):
    """Layers of the kind ``linear_attention``, and the first ones, normalise over the whole width; some have no biases."""

    config_class = ListedConfig

    def __init__(self, config: ListedConfig):
        super().__init__(config)
        for layer, biased in zip(self.layers, config.use_bias):
            if not biased:
                layer.up = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)

    def forward(self, input_ids, return_dict=True):
        config, x = self.config, self.embed(input_ids)
        words = config.norm_kinds or ()
        for number, layer in enumerate(self.layers):
            other = (
                config.layer_types[number] == "linear_attention"
                or number < config.first_dense_layers
                or "full" in words
            )
            x = layer(x, lambda x, other=other: other)
        return BaseModelOutput(last_hidden_state=self.norm(x))


class _Along(nn.Module):
    """Between its products, the numbers are summed up along the tokens in the first layers, along the width later."""

    def __init__(self, config, number):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.number = number

    def forward(self, x):
        return x + self.down(self.up(x).cumsum(1 if self.number < 2 else 2) / 16)


class Along(Otherwise):
    """Layers that differ by the dimension of one operation."""

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList(_Along(config, number) for number in range(config.num_hidden_layers))

    def forward(self, input_ids, return_dict=True):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=self.norm(x))


class Inlined(Otherwise):
    """The model itself calls the products of its layers; between those of the third it normalises."""

    def forward(self, input_ids, return_dict=True):
        x = self.embed(input_ids)
        for number, layer in enumerate(self.layers):
            hidden = F.gelu(layer.up(layer.norm(x)))
            x = x + layer.down(F.normalize(hidden, dim=-1) * 4 if number == 2 else hidden)
        return BaseModelOutput(last_hidden_state=self.norm(x))
