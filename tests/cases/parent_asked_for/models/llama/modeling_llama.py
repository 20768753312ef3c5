from torch import nn


class LlamaError(ValueError):
    pass


class LlamaLayer(nn.Module):
    def forward(self, x):
        return x


class LlamaModel(nn.Module):
    def count(self, modules):
        return sum(isinstance(module, LlamaLayer) for module in modules)

    def is_plain(self, module):
        return type(module) is LlamaLayer
