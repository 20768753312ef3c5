from torch import nn

from ..llama.modeling_llama import LlamaMixer


class EmuMixer(LlamaMixer):
    def __init__(self, config):
        self.use_bias = config.proj_bias
        super().__init__(config)
        self.out_proj = nn.Linear(config.size, config.size, bias=self.use_bias)
        del self.use_bias
