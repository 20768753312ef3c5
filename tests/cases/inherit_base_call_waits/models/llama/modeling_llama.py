import torch.nn as nn


class LlamaLayer(nn.Module):
    def __init__(self, size):
        super().__init__(size)
        self.up = size * 3


class LlamaBlock(nn.Module):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size


class LlamaGate(nn.Module):
    def __init__(self, config, scale):
        super().__init__(config, scale)
        self.scale = scale


class LlamaPlain(nn.Module):
    def __init__(self, config):
        super().__init__(config)
        self.up = config.size
