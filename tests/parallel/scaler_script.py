"""A gradient scaler with uneven shares, which are plain tensors; the first process prints its results as JSON."""

from __future__ import annotations

import copy
import json
import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForSequenceClassification

from modular_converter.parallel import parallelize
from tests.parallel.weights_script import IDS, llama, said


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


def largest():
    """How far largest entries of gradients are from those of one process, where one process has no entry of a weight."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    settings = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, num_labels=1)
    one = LlamaForSequenceClassification(settings)
    there = parallelize(copy.deepcopy(one), layout="fsdp2", device="cpu", probe=False)
    empty = [weight.to_local().numel() == 0 for weight in there.parameters()]
    found = []
    for model in (one, there):
        model(input_ids=IDS).logits.pow(2).sum().backward()
        clip = torch.nn.utils.clip_grad_norm_
        norms = [torch.nn.utils.get_total_norm([each.grad for each in model.parameters()], math.inf)]
        norms.append(
            model.clip_grad_norm_(0.1, math.inf) if model is there else clip(model.parameters(), 0.1, math.inf)
        )
        norms += [clip(model.parameters(), 0.05, math.inf, foreach=foreach) for foreach in (True, False)]
        norms.append(clip(model.parameters(), 1.0))
        found.append([float(norm.full_tensor() if isinstance(norm, DTensor) else norm) for norm in norms])
    refused = said(lambda: there.clip_grad_norm_(1.0, -math.inf))
    return any(empty), refused, max(abs(a - b) for a, b in zip(*found, strict=True)), float(found[0][0])


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
    found = main() | {"largest": largest()}
    everyone = [None, None]
    dist.all_gather_object(everyone, found)
    if dist.get_rank() == 0:
        found["scales"] = all(one["scales"] for one in everyone)
        found["largest"] = [one["largest"] for one in everyone]
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
