"""Models whose configuration says which layers compute otherwise: by a list, by a number, by a switch a layer."""

from __future__ import annotations

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
