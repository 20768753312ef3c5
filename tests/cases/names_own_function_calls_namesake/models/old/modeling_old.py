from torch import nn


def old_init(weight, scale=1.0):
    return nn.init.normal_(weight, std=scale)


class OldMLP(nn.Linear):
    def reset_parameters(self):
        old_init(self.weight)
