from torch import nn

from ...utils import logging


CONSTANT = 1
logger = logging.get_logger(__name__)


class LlamaFirst(nn.Module):
    pass


def early(x):
    return x


class LlamaSecond(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = LlamaFirst()


def late(x):
    return early(x) + CONSTANT


class LlamaThird(nn.Module):
    def forward(self, x):
        logger.info("third")
        return late(x)


class LlamaFourth(nn.Module):
    def __init__(self):
        super().__init__()
        self.third = LlamaThird()
        self.second = LlamaSecond()
