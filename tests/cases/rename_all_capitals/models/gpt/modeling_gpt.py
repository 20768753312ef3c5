from torch import nn


GPT_INPUTS = "GPT models; GPTish"


class GPTLayer(nn.Module):
    """GPT, a gpt and GPT2: a gPt."""

    def forward(self, gpt):
        return gpt.GPT, GPT_INPUTS
