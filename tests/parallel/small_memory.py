"""Models whose steps run out of memory, crash or hang in some layouts, as the code of a model can."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from modular_converter.parallel import Training


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4}


def held(model):
    """Entries of the weights that this process holds."""
    return sum((one.to_local() if hasattr(one, "to_local") else one).numel() for one in model.parameters())


class Limited(LlamaForCausalLM):
    """Has room for half of its weights: more is what torch's allocator raises."""

    most = 0.6

    def forward(self, input_ids=None, labels=None, use_cache=None, **more):
        if "_applied" in vars(self) and self._full():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB (simulated)")
        return super().forward(input_ids=input_ids, labels=labels, use_cache=use_cache, **more)

    def _full(self):
        whole = 64 * 32 * 2 + 4 * (4 * 32 * 32 + 3 * 32 * 64)
        return held(self) > self.most * whole


class Nowhere(Limited):
    most = 0.0


class Killed(LlamaForCausalLM):
    """The second process is killed, as by the system when the host's memory is full."""

    def forward(self, input_ids=None, labels=None, use_cache=None, **more):
        if "_applied" in vars(self) and os.environ["RANK"] == "1" and held(self) > 30_000:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(input_ids=input_ids, labels=labels, use_cache=use_cache, **more)


class InTrouble(LlamaForCausalLM):
    """The second process gets into trouble: once, if TROUBLE_FILE can be made, and else each time."""

    def forward(self, input_ids=None, labels=None, use_cache=None, **more):
        mark = Path(os.environ.get("TROUBLE_FILE", "none"))
        if os.environ.get("RANK") == "1" and not mark.exists():
            if mark.parent.exists():
                mark.touch()
            self._get_into(os.environ["TROUBLE"])
        return super().forward(input_ids=input_ids, labels=labels, use_cache=use_cache, **more)

    def _get_into(self, trouble):
        if trouble == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB (simulated)")
        if trouble == "raise":
            raise ValueError("of a layer")
        if trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "exit":
            os._exit(7)
        time.sleep(10_000)


def make(case):
    kind = {"limited": Limited, "nowhere": Nowhere, "killed": Killed}.get(case, LlamaForCausalLM)
    more = Training(recompute=True) if case == "options" else Training(chunks=2) if case == "stages" else None
    return kind(LlamaConfig(**SIZES, **HEADS)), more
