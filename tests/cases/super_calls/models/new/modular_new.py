import torch
from torch import nn

from ..llama.modeling_llama import LlamaModel


class NewModel(LlamaModel):
    def __init__(self, config):
        before = config.before
        super().__init__(config)
        # In the place of llama's.
        self.embed = nn.Embedding(config.size, 4)
        del self.typed
        self.size = config.size  # there already
        self.extra = before
        self.post_init()

    def forward(self, x, scale=2):
        x = torch.relu(x)
        return super().forward(x, scale)

    def wrapped(self, x):
        super().wrapped(x)
        z = y * 2  # noqa: F821
        return z

    # Not a statement of its own: it stays.
    def nested(self, x):
        return super().nested(x) + 1
