from torch import nn


LLAMA_EPS = 1e-6


class LlamaNorm(nn.Module):
    def __init__(self, size, eps: float = LLAMA_EPS, *, is_fast=False, **kwargs):
        super().__init__()
        self.size, self.eps, self.is_fast = size, eps, is_fast

    def forward(self, hidden_states, scale=1):
        return hidden_states * scale

    def depth(self):
        return len(type(self).__mro__)
