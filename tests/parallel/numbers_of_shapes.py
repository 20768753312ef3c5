"""Models whose layers make numbers of the shapes of their weights, which small instances do not show."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from tests.parallel.deceptive import DeceptiveConfig, _Model


# Behind the end of each small instance, inside a share of each model.
_BORDER = 120


class _Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return x + self.down(self.changed(F.gelu(self.up(x))))

    def changed(self, hidden):
        raise NotImplementedError


class _Stack(_Model):
    def __init__(self, config: DeceptiveConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(self.block(config) for _ in range(config.num_hidden_layers))
        self.post_init()

    def forward(self, input_ids, return_dict=True):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=x)


class ScaledBlock(_Block):
    """Very wide layers are scaled down."""

    def changed(self, hidden):
        return hidden * min(1.0, 200 / self.up.weight.shape[0])


class Scaled(_Stack):
    block = ScaledBlock


class PlainBlock(_Block):
    def changed(self, hidden):
        return hidden


class ScaledBehind(_Stack):
    """The model itself scales what very wide layers give."""

    block = PlainBlock

    def forward(self, input_ids, return_dict=True):
        found = super().forward(input_ids)
        found["last_hidden_state"] = found.last_hidden_state * min(1.0, 200 / self.layers[0].up.weight.shape[0])
        return found


class _Numbered(_Stack):
    """Layers that are built with their number."""

    def __init__(self, config: DeceptiveConfig):
        super().__init__(config)
        self.layers = nn.ModuleList(self.block(config, number) for number in range(config.num_hidden_layers))
        self.post_init()


class DeeperBlock(_Block):
    """The scale grows with the number of the layer, and only wide layers bound it: the shares of the last layers do not."""

    def __init__(self, config, number=0):
        super().__init__(config)
        self.number = number

    def changed(self, hidden):
        return hidden * max(1.0, self.up.weight.shape[0] / (300 - 30 * self.number))


class Deeper(_Numbered):
    block = DeeperBlock


class WiderBlock(ScaledBlock):
    """One layer in the middle is wide enough to be scaled down."""

    def __init__(self, config, number=0):
        super().__init__(config)
        width = 512 if number == 2 else 128
        self.up = nn.Linear(config.hidden_size, width)
        self.down = nn.Linear(width, config.hidden_size)


class Wider(_Numbered):
    block = WiderBlock


class FilledBlock(_Block):
    """The number is in a new tensor."""

    def changed(self, hidden):
        return hidden * torch.full((1,), min(1.0, 200 / hidden.shape[-1]))


class Filled(_Stack):
    block = FilledBlock


class CancelledBlock(_Block):
    """Two numbers that differ on each rank, of the small instance too, and cancel each other."""

    def changed(self, hidden):
        return hidden * hidden.shape[-1] / self.up.weight.size(0)


class Cancelled(_Stack):
    block = CancelledBlock


class NamedBlock(_Block):
    """A word in place of a number."""

    def changed(self, hidden):
        return 9 * F.gelu(hidden, approximate="tanh" if hidden.shape[-1] > 200 else "none")


class Named(_Stack):
    block = NamedBlock


class TypedBlock(_Block):
    """A type in place of a number."""

    def changed(self, hidden):
        return (40 * hidden).to(torch.int8 if hidden.shape[-1] > 200 else torch.int32).to(hidden.dtype)


class Typed(_Stack):
    block = TypedBlock


class BorderedBlock(_Block):
    """A border that lies behind the end of a small instance's layers."""

    def changed(self, hidden):
        return torch.cat((hidden[..., :_BORDER], hidden[..., _BORDER:].tanh() - 2), -1)


class Bordered(_Stack):
    block = BorderedBlock


class NarrowedBlock(_Block):
    """The same border, never behind the end."""

    def changed(self, hidden):
        border = min(_BORDER, hidden.shape[-1])
        return torch.cat((hidden.narrow(-1, 0, border), hidden[..., border:].tanh() - 2), -1)


class Narrowed(_Stack):
    block = NarrowedBlock
