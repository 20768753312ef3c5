import os
import re

import numpy as np
from torch import nn, relu

from ...utils import is_kernel_available, logging
from ..llama.modeling_llama import LlamaModel


if is_kernel_available():
    from kernel import run
else:
    run = None


class NewModel(LlamaModel):
    def extra(self, x):
        return run(np.array(x)), os.sep
