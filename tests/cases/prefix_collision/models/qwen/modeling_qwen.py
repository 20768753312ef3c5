from torch import nn


class QwenNorm(nn.Module):
    pass


class QwenTextNorm(nn.Module):
    pass


class QwenMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = QwenNorm()
        self.text_norm = QwenTextNorm()
