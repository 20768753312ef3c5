"""Models whose numbers hide a wrong plan from a careless comparison, each with a right and a wrong plan."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig


@strict
class DeceptiveConfig(PreTrainedConfig):
    model_type = "deceptive"
    vocab_size: int = 320
    hidden_size: int = 256
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    pad_token_id: int | None = 0


class _Model(PreTrainedModel):
    config_class = DeceptiveConfig
    base_model_prefix = "model"
    _no_split_modules = []

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(0.0, 0.3)


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stack(_Model):
    """Layers of feed-forwards; models below change what is returned."""

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Mlp(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.more(config)
        self.post_init()

    def more(self, config):
        """Further layers."""

    def forward(self, input_ids, return_dict=True):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.returned(self.norm(x))

    def returned(self, hidden):
        """The outputs."""
        return {"hidden": hidden}


class CodesModel(Stack):
    """The codes are integers."""

    def more(self, config):
        self.codebook = nn.Parameter(torch.randn(64, config.hidden_size))

    def returned(self, hidden):
        return {"hidden": hidden, "codes": (hidden @ self.codebook.t()).argmax(-1)}


class MaskedModel(Stack):
    """Four columns of the logits hold the smallest number there is."""

    def more(self, config):
        self.head = nn.Linear(config.hidden_size, config.vocab_size)

    def returned(self, hidden):
        logits = self.head(hidden)
        logits[..., :4] = torch.finfo(logits.dtype).min
        return {"logits": logits}


class TinyOutModel(Stack):
    """Outputs of about 1e-11."""

    def returned(self, hidden):
        return {"hidden": 1e-11 * hidden}


class NanGradModel(Stack):
    """The square root of a negative number is never chosen, but its gradient is NaN."""

    def returned(self, hidden):
        return {"hidden": torch.where(hidden > 100, torch.sqrt(hidden - 100), hidden)}


class DrownedModel(Stack):
    """An output is 1e7 times as large as the other, which alone has a side branch."""

    def more(self, config):
        self.side_norm = nn.LayerNorm(config.hidden_size)
        self.q = nn.Linear(config.hidden_size, config.hidden_size)
        self.o = nn.Linear(config.hidden_size, config.hidden_size)

    def returned(self, hidden):
        return {"large": hidden * 1e7, "small": self.side(hidden)}

    def side(self, hidden):
        """The branch of the small output."""
        return self.o(F.gelu(self.q(self.side_norm(hidden))))


class JoinedModel(DrownedModel):
    """The large and the small output are halves of one tensor."""

    def returned(self, hidden):
        return {"both": torch.cat([hidden * 1e7, self.side(hidden)], -1)}


class _Normalising(Stack):
    """A stack whose feed-forwards normalise their intermediate in some situations: there its parts are no shares."""

    def forward(self, input_ids, attention_mask=None, return_dict=True):
        x = self.embed(input_ids)
        for layer in self.layers:
            hidden = F.gelu(layer.up(layer.norm(x)))
            if self.normalises(x, attention_mask):
                hidden = F.normalize(hidden, dim=-1) * 4
            x = x + layer.down(hidden)
        return self.returned(self.norm(x))


class PaddedModel(_Normalising):
    """With an attention mask."""

    def normalises(self, x, attention_mask):
        return attention_mask is not None


class LongModel(_Normalising):
    """Above 16 tokens."""

    def normalises(self, x, attention_mask):
        return x.shape[1] > 16


class TrainedModel(_Normalising):
    """In train mode."""

    def normalises(self, x, attention_mask):
        return self.training


class ShiftedMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.register_buffer("shift", torch.zeros(config.hidden_size))

    def forward(self, x):
        return self.down(F.gelu(self.up(x))) + self.shift


class BufferModel(Stack):
    """A buffer is zero until a checkpoint fills it."""

    def more(self, config):
        self.layers = nn.ModuleList(ShiftedMlp(config) for _ in range(config.num_hidden_layers))


_LAYERS = "rule embed embedding_rowwise\nrule layers.*.up colwise\n"
_UNSUMMED_GRADIENT = (
    "rule layers.*.up.weight shard dim=0\nrule layers.*.up.bias shard dim=0\nrule layers.*.down rowwise\n"
)
_RIGHT = f"{_LAYERS}rule layers.*.down rowwise\n"
# model -> the rules of a right plan and of a wrong plan
PLANS = {
    CodesModel: (_RIGHT, f"{_RIGHT}rule codebook shard dim=0\n"),
    MaskedModel: (
        f"{_RIGHT}rule head colwise_gather_output\n",
        f"{_RIGHT}rule head colwise_gather_output\nrule head all_reduce\n",
    ),
    TinyOutModel: (
        _RIGHT,
        "rule layers.*.up.weight shard dim=0\nrule layers.*.up.bias shard dim=0\nrule layers.*.down.weight shard dim=1\n",
    ),
    NanGradModel: (_RIGHT, _UNSUMMED_GRADIENT),
    DrownedModel: (
        "rule q colwise\nrule o rowwise\n",
        "rule q.weight shard dim=0\nrule q.bias shard dim=0\nrule o rowwise\n",
    ),
    JoinedModel: ("rule q colwise\nrule o rowwise\n", "rule q colwise\nrule o rowwise\nrule o all_reduce\n"),
    BufferModel: (_RIGHT, f"{_LAYERS}rule layers.*.down.weight shard dim=1\nrule layers.* all_reduce\n"),
}
