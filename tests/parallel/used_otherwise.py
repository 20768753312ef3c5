"""Models whose arithmetic differs between uses: a plan that is right in one plain forward is wrong in another use."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import BaseModelOutput
from typing_extensions import Unpack

from tests.parallel.deceptive import DeceptiveConfig, _Model


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x, otherwise):
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(F.normalize(h, dim=-1) * 4 if otherwise(x) else h)


class Otherwise(_Model):
    """In one use, the layers normalise over the whole width between their two products."""

    def __init__(self, config: DeceptiveConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, return_dict=True):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, lambda x: self.is_other(x, attention_mask))
        return BaseModelOutput(last_hidden_state=self.norm(x))

    def is_other(self, x, mask):
        raise NotImplementedError


class AfterLongerText(Otherwise):
    """It remembers the length of the last call, and takes no longer text than that."""

    def is_other(self, x, mask):
        last = self.__dict__.setdefault("last", x.shape[1])
        if x.shape[1] > last:
            raise ValueError("longer than the last text")
        self.__dict__["last"] = x.shape[1]
        return False


class WithManyChoices(Otherwise):
    """Whatever is chosen, it makes ten million numbers of it."""

    def forward(self, input_ids, attention_mask=None, choices=None, return_dict=True):
        found = super().forward(input_ids)
        if choices is None:
            return found
        size = 10_000_000 // found.last_hidden_state.numel() + 1
        return BaseModelOutput(last_hidden_state=found.last_hidden_state.repeat(size, 1, 1)[:2])

    def is_other(self, x, mask):
        return False


class InLongText(Otherwise):
    def is_other(self, x, mask):
        return x.shape[1] > 20


class InShortText(Otherwise):
    def is_other(self, x, mask):
        return not x.size(1) >= 7


class WithPadding(Otherwise):
    def is_other(self, x, mask):
        return mask is not None and not bool(mask.all())


class InTraining(Otherwise):
    def is_other(self, x, mask):
        return self.training


class WithLargeValues(Otherwise):
    def is_other(self, x, mask):
        return bool((x.abs() > 40).any())


class WithLargeNumbers(Otherwise):
    def is_other(self, x, mask):
        return x.abs().max().item() > 40


class InBlocksOfEight(Otherwise):
    def is_other(self, x, mask):
        return x.shape[1] % 8 == 0


class InNoFives(Otherwise):
    def is_other(self, x, mask):
        return not x.shape[1] % 5


class InFiftyTokens(Otherwise):
    def is_other(self, x, mask):
        return x.shape[1] == 50


class InOneRow(Otherwise):
    def is_other(self, x, mask):
        return x.shape[0] == 1


class InManyRows(Otherwise):
    def is_other(self, x, mask):
        return len(x.shape) * x.shape[0] > 12


class WithManyNumbers(Otherwise):
    def is_other(self, x, mask):
        return x.numel() > 60 * self.config.hidden_size


class WithLargeLists(Otherwise):
    def is_other(self, x, mask):
        return max(x.abs().amax(1).flatten().tolist()) > 40


class WithLargeArrays(Otherwise):
    def is_other(self, x, mask):
        return np.asarray(x.detach().abs()).max() - 40 > 0


class WithGate(Otherwise):
    """An optional tensor."""

    def forward(self, input_ids, gate=None, return_dict=True):
        x = self.embed(input_ids)
        x = x if gate is None else self.gated(x, gate)
        for layer in self.layers:
            x = layer(x, lambda x: gate is not None)
        return BaseModelOutput(last_hidden_state=self.norm(x))

    def gated(self, x, gate):
        return x * gate[:, :, None]


class WithGates(WithGate):
    """An optional list of tensors, one for each layer."""

    def gated(self, x, gate):
        return x + gate[0] + gate[1]


class WithOddGate(WithGate):
    """An optional tensor of a shape that nothing in the model has."""

    def gated(self, x, gate):
        return x + gate.view(7, 1, 1, 1).sum(0)


class WithOffset(Otherwise):
    """An optional tensor of an odd shape, which only moves the embeddings, as others move them, too."""

    def forward(self, input_ids, offset=None, return_dict=True):
        x = self.embed(input_ids) + self.norm.bias.sum()
        x = x if offset is None else x + offset.view(7)[0]
        for layer in self.layers:
            x = layer(x, lambda x: False)
        return BaseModelOutput(last_hidden_state=self.norm(x))


class WithSwitch(Otherwise):
    def forward(self, input_ids, normalise=False, return_dict=True):
        return super().forward(input_ids, attention_mask=normalise)

    def is_other(self, x, mask):
        return mask


class WithEmbeddings(Otherwise):
    def forward(self, input_ids=None, inputs_embeds=None, return_dict=True):
        x = self.embed(input_ids) if inputs_embeds is None else inputs_embeds
        for layer in self.layers:
            x = layer(x, lambda x: inputs_embeds is not None)
        return BaseModelOutput(last_hidden_state=self.norm(x))


class WithKeyword(WithGate):
    """A tensor that only ``**kwargs`` take, on the way to the layers."""

    def forward(self, input_ids, return_dict=True, **kwargs):
        return super().forward(input_ids, **kwargs)


class Keywords(TypedDict, total=False):
    gate: torch.Tensor | None


class WithNamedKeyword(WithKeyword):
    """A tensor that ``**kwargs`` take by a name that the signature says."""

    def forward(self, input_ids, return_dict=True, **kwargs: Unpack[Keywords]):
        return super().forward(input_ids, **kwargs)

    def gated(self, x, gate):
        return x * gate.sum()


class WithLargeEntries(Otherwise):
    """The other side needs an entry that it was asked for."""

    def is_other(self, x, mask):
        if bool((x.abs() > 40).any()):
            return (x.abs() > 40).nonzero()[0].numel() > 0
        return False


class WithOneLargeEntry(Otherwise):
    """A number that is written in the code leads to the other side."""

    def is_other(self, x, mask):
        return int((x.abs() > 40).sum()) == 1


class WithLargeSquare(Otherwise):
    """Nothing that is tried leads to the other side."""

    def is_other(self, x, mask):
        count = int((x.abs() > 40).sum())
        return [True, False][min(count, 10) ** 2 // 99] if count else False
