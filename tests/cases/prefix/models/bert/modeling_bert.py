from torch import nn


class BertDense(nn.Module):
    pass


class BertPooler(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = BertDense()
