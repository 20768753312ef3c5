# Copyright of llama.
"""The docstring of the llama module."""

from torch import nn


class LlamaModel(nn.Module):
    pass
