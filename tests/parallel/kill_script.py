"""One process that saves checkpoints and is killed in the middle of the third; the last complete one is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import in_process_group  # noqa: F401  # once, not in each child


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


def join(folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{os.getpid()}", rank=0, world_size=1)
    model = parallelize(Small(), layout="tp1", device="cpu", probe=False)
    return model, torch.optim.AdamW(model.parameters())


def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def save_until_killed(folder, place):
    model, optimizer = join(folder)
    for step in range(1, 4):
        if step == 3:
            owner, name = {"notes": (Path, "write_text"), "rename": (os, "rename"), "old": (shutil, "rmtree")}[place]
            setattr(owner, name, kill)
        with torch.no_grad():
            model.inner.weight.fill_(step)
        model.save_checkpoint(folder / "run", optimizer, step, keep=2)


def what_is_left(folder):
    model, optimizer = join(folder)
    step = model.load_checkpoint(folder / "run", optimizer).step
    same = bool((model.inner.weight == step).all())
    model.save_checkpoint(folder / "run", optimizer, 4, keep=2)
    names = sorted(path.name for path in (folder / "run").iterdir())
    print(json.dumps({"step": step, "same": same, "names": names}), flush=True)


def main(folder):
    for place in ("notes", "rename", "old"):
        own = folder / place
        own.mkdir()
        for dies in (True, False):
            if child := os.fork():
                os.waitpid(child, 0)
                continue
            if dies:
                save_until_killed(own, place)
            what_is_left(own)
            os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
