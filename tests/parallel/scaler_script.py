"""A gradient scaler with uneven shares, which are plain tensors; the first process prints its results as JSON."""

from __future__ import annotations

import copy
import json

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel import parallelize
from tests.parallel.weights_script import IDS, llama


def scaled(model, optimizer, scaler, poisoned=None, here=True):
    """The scale after a step, in which one entry of a gradient may be infinite in one process."""
    optimizer.zero_grad()
    scaler.scale(model(input_ids=IDS, labels=IDS).loss).backward()
    if poisoned is not None and here:
        gradient = list(model.parameters())[poisoned].grad
        gradient = gradient.to_local() if isinstance(gradient, DTensor) else gradient.as_subclass(torch.Tensor)
        gradient.view(-1)[-1] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale()


def by_lists(whole, **options):
    """How far weights are from those of one process after operations on lists of DTensors and shares of other types."""
    one, there = copy.deepcopy(whole), parallelize(copy.deepcopy(whole), layout="tp2", device="cpu", probe=False)
    for model in (one, there):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4, **options)
        for _ in range(2):
            model(input_ids=IDS, labels=IDS).loss.backward()
            torch.nn.utils.clip_grad_value_(model.parameters(), 1e-2, foreach=True)
            optimizer.step()
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), torch._foreach_mul(list(model.parameters()), 0.5))
    return furthest(there, one)


def furthest(there, one):
    state = there.full_state_dict()
    return max(float((state[name] - value).abs().max()) for name, value in one.state_dict().items())


def main():
    one = llama(3, 3)
    there = parallelize(copy.deepcopy(one), layout="tp2", device="cpu", probe=False)
    plain = [n for n, weight in enumerate(there.parameters()) if not isinstance(weight, DTensor)]
    lists = {"fused": by_lists(one, fused=True), "foreach": by_lists(one, foreach=True)}
    pair = [
        (model, torch.optim.AdamW(model.parameters(), lr=1e-2), torch.amp.GradScaler("cpu", init_scale=4096.0))
        for model in (one, there)
    ]
    same = True
    for poisoned in (None, *(number for number in (plain[0], plain[-1], 0) for _ in range(2)), None):
        for rank in range(2):
            here = (True, dist.get_rank() == rank)
            want, got = (scaled(*each, poisoned, at) for each, at in zip(pair, here))
            same = same and want == got
    return {"plain": bool(plain), "scales": same, "weights": furthest(there, one), "lists": lists}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = main()
    everyone = [None, None]
    dist.all_gather_object(everyone, found)
    if dist.get_rank() == 0:
        found["scales"] = all(one["scales"] for one in everyone)
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
