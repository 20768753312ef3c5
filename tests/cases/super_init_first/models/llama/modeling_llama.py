from torch import nn


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.size = config.size
