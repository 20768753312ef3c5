import importlib.util
import os
import os.path

from torch import nn
from torch.nn.functional import gelu as activation


if importlib.util.find_spec("fast"):
    from fast import gelu as activation


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return activation(hidden_states) if os.path.sep else hidden_states
