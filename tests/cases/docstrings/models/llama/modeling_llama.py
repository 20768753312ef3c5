from torch import nn


class LlamaRotary(nn.Module):
    """The docstring of LlamaRotary, of llama."""

    # A comment on LlamaRotary and Llama.
    name = "LlamaRotary"

    def forward(self, x):
        return LlamaRotary, x


class LlamaNorm(nn.Module):
    """The docstring of LlamaNorm."""

    def forward(self, x):
        """Parent's."""
        return x
