import re

import torch
from torch.nn import functional as F

from ...utils import logging


logger = logging.get_logger("llama")


class LlamaPart:
    def llama_size(self):
        return 1


class LlamaMLP:
    def __init__(self, config):
        self.llama = config.llama
        self.part = LlamaPart()

    def forward(self, x):
        logger.warning_once("a word about llama")
        logger.info("llama")
        x = F.interpolate(x, mode="llama")
        self.llama(x)
        return torch.llama(x).llama(0, 1) + x.llama(2) + self.part.llama_size() + LlamaPart().llama_size()

    def matches(self, x):
        return re.match(r"llama-\d", x) or x == b"llama" or F.pad(x, mode="a llama") or x == "llama"

    def gone(self, x):
        return x.llama(3)
