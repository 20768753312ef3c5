"""Layers that no small instance shows: of a certain depth, and put into a model after its construction."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from tests.parallel.used_otherwise import Otherwise


class Deep(Otherwise):
    """The layers from the third on normalise over the whole width."""

    def forward(self, input_ids, return_dict=True):
        x = self.embed(input_ids)
        for number, layer in enumerate(self.layers):
            x = layer(x, lambda x, number=number: number >= 2)
        return BaseModelOutput(last_hidden_state=self.norm(x))


class ScaledLinear(nn.Linear):
    """As in weight-only quantisation: the weight is changed before the product."""

    scale = 0.5

    def forward(self, input):
        return F.linear(input, self.weight * self.scale, self.bias)


class NormalisedLinear(nn.Linear):
    """The input is normalised over its whole width."""

    def forward(self, input):
        return super().forward(F.normalize(input, dim=-1) * 4)


class SameLinear(nn.Linear):
    """Another class with the same product."""


def exchanged(model, kind, name):
    """The model with another class for each linear layer of a name."""
    for path, module in list(model.named_modules()):
        if path.endswith(name) and type(module) is nn.Linear:
            made = kind(module.in_features, module.out_features, bias=module.bias is not None)
            made.load_state_dict(module.state_dict())
            setattr(model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2], made)
    return model.eval()
