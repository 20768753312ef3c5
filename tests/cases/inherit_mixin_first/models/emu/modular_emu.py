from torch import nn

from ..llama.modeling_llama import LlamaMLP


class EmuMixin(nn.Module):
    def extra_repr(self):
        return "emu"


class EmuFirstMLP(EmuMixin, LlamaMLP):
    pass


class EmuLastMLP(LlamaMLP, EmuMixin):
    pass
