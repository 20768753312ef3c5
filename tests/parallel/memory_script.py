"""The work of each process of `test_memory.py` under torchrun; the first one prints what all have read and held as JSON.

Bytes are those that safetensors gives out. Memory is this process's own (without mapped files), sampled all the time.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.engine.checkpoint import reader
from modular_converter.parallel.engine.group.spread import each_once


PAGE = 4096
MMAP_THRESHOLD = -3
"""Of ``mallopt``: allocations of more bytes are mapped, and go back to the system once they are freed."""


class Counted:
    """An open file of safetensors that counts the bytes it gives out."""

    read = 0

    def __init__(self, opened):
        self.opened = opened

    def __enter__(self):
        self.opened.__enter__()
        return self

    def __exit__(self, *exception):
        return self.opened.__exit__(*exception)

    def __getattr__(self, name):
        return getattr(self.opened, name)

    def get_slice(self, key):
        return CountedSlice(self.opened.get_slice(key))

    def get_tensor(self, key):
        return counted(self.opened.get_tensor(key))


class CountedSlice:
    def __init__(self, opened):
        self.opened = opened

    def __getitem__(self, where):
        return counted(self.opened[where])


def counted(tensor):
    Counted.read += tensor.nbytes
    return tensor


def own_memory():
    """Bytes of memory that belong to this process alone."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * PAGE


class Peak(threading.Thread):
    """The largest memory while it runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.largest, self.ended = own_memory(), threading.Event()

    def run(self):
        while not self.ended.is_set():
            self.largest = max(self.largest, own_memory())
            time.sleep(0.0005)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.ended.set()
        self.join()


def held(model):
    """The bytes of this process's entries of the weights."""
    weights = model.spreads().values() if hasattr(model, "spreads") else each_once(model)
    return sum(one.local(one.stored).nbytes for one in weights)


def started(given, layout, training):
    """A start, and what it read and held; every number is of bytes."""
    gc.collect()
    Counted.read = 0
    before = own_memory()
    with Peak() as peak:
        model = parallelize(given, layout=layout, training=training, device="cpu")
    return model, {"read": Counted.read, "peak": peak.largest - before}


def difference(model, folder):
    """The largest difference of the gathered weights from those of the folder; names must be the same, ties included."""
    from transformers import AutoModelForCausalLM

    found = model.full_state_dict()
    whole = AutoModelForCausalLM.from_pretrained(folder)
    want = whole.state_dict()
    assert found.keys() == want.keys(), found.keys() ^ want.keys()
    assert all(found[name].dtype == value.dtype for name, value in want.items())
    return max(float((found[name] - value).abs().max()) for name, value in want.items())


def step(model, optimizer):
    """A loss with its backward and a step."""
    ids = torch.arange(4 * 8).view(4, 8) % 50
    part = ids.chunk(model.layout.data)[model.data_rank]
    if model.layout.pp > 1:
        loss = model.step(input_ids=part, labels=part)
    else:
        loss = model(input_ids=part, labels=part, use_cache=False).loss
        loss.backward()
    norm = model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach()), float(norm)


def tried(folder, source, layout, options):
    from transformers import AutoModelForCausalLM

    if "compute_type" in options:
        options = {**options, "compute_type": getattr(torch, options["compute_type"])}
    from_memory = source == "memory"
    training = Training(**options, **({"chunks": 2} if "pp" in layout else {}))
    given = AutoModelForCausalLM.from_pretrained(folder) if from_memory else folder
    for one in given.parameters() if from_memory else ():
        one.data = one.data.clone()  # not a mapped file
    model, found = started(given, layout, training)
    del given
    gc.collect()
    found |= {"held": held(model), "differs": difference(model, folder)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    found["steps"] = [step(model, optimizer) for _ in range(2)]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, found)
    return every


def small():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))


def main(folder, runs):
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 16)
    dist.init_process_group("gloo")
    own = reader.safe_open
    reader.safe_open = lambda *args, **kwargs: Counted(own(*args, **kwargs))
    parallelize(small(), layout=f"fsdp{dist.get_world_size()}", device="cpu")  # what is imported stays
    for run in json.loads(runs):
        try:
            line = {"run": run, "ranks": tried(folder, *run)}
        except Exception as error:
            line = {"run": run, "error": f"{type(error).__name__}: {str(error)[:300]}"}
        if dist.get_rank() == 0:
            print(json.dumps(line), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
