"""A model whose ranks fail together, fail alone, die or hang, as a call asks for. Ranks import it by name."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist


PLAN = "plan troubled\nrule up colwise\nrule down rowwise\n"


class Troubled(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.register_buffer("shift", torch.randn(width), persistent=False)
        self.constant = torch.randn(width)

    def forward(self, x, trouble=""):
        alone = dist.is_initialized() and dist.get_rank() == 1
        if trouble == "together":
            raise KeyError("all ranks")
        if trouble == "late":
            time.sleep(1.5 * alone)
            raise KeyError("one after the other")
        if trouble == "device":
            raise getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: device-side assert triggered")
        if trouble == "alone" and alone:
            raise ValueError("only here")
        if trouble == "memory" and alone:
            raise torch.OutOfMemoryError("no room left")
        if trouble == "dies" and alone:
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "crashes" and alone:
            os.kill(os.getpid(), signal.SIGSEGV)
        if trouble == "hangs" and alone:
            time.sleep(600)
        if trouble == "slow":
            time.sleep(300)
        if trouble == "module":
            return self.up
        return self.down(torch.relu(self.up(x))) + self.shift + self.constant
