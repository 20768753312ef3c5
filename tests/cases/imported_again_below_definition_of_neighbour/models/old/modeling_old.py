from torch import nn


fast_scale = None
try:
    from fast_kernels import fast_scale
except ImportError:
    pass


def unused(hidden_states):
    return hidden_states


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return fast_scale(hidden_states) if fast_scale is not None else hidden_states * 2
