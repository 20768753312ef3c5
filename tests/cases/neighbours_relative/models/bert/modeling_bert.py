from torch import nn


class BertPooler(nn.Module):
    def forward(self, x):
        return x[:, 0]
