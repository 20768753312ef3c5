"""The work of the two processes of `test_parts_of_batch.py`; the first one prints its results as JSON.

Each use gives what one process computes with the whole batch, as the largest difference, or the words of the error.
"""

from __future__ import annotations

import contextlib
import copy
import json

import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.tiny.build import build, target_of


IDS = torch.arange(1, 33).view(4, 8)
SOME = IDS.masked_fill(IDS < 14, -100)  # the first rows have fewer labels that count
X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
WEIGHTS = torch.tensor([0.1, 1.0, 3.0])


class Norms(nn.Module):
    """A norm with running statistics between layers; the number of calls is the same on all processes."""

    def __init__(self, norm):
        super().__init__()
        self.norm = nn.BatchNorm1d(4) if norm else nn.LayerNorm(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.norm(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Counted(Norms):
    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Writes(Norms):
    """Its layers begin by writing to what they get, which the code around them uses afterwards."""

    def __init__(self, norm):
        super().__init__(norm)
        self.layers = nn.ModuleList(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)) for _ in range(2))

    def forward(self, x):
        x = self.norm(x)
        for layer in self.layers:
            x = x * 1.5
            x = x + layer(x)
        return self.head(x)


class WritesToInput(Writes):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Scored(Norms):
    """It returns a loss of its own."""

    def __init__(self, loss):
        super().__init__(False)
        self.loss = loss

    def forward(self, x, y=None):
        out = super().forward(x)
        return out if y is None else {"loss": self.loss(out, y), "out": out}


def scored(layout, loss, rows=8, **examples):
    """A model's own loss, with and without its target among the example inputs."""
    whole = made(Scored, loss)
    there = parallelize(copy.deepcopy(whole), layout=layout, device="cpu", **examples)
    whole(X[:rows], Y[:rows])["loss"].backward()
    there(*(one[:rows].chunk(2)[there.data_rank] for one in (X, Y)))["loss"].backward()
    return difference(whole, there)


def made(kind, norm=False):
    torch.manual_seed(0)
    return kind(norm)


def causal():
    torch.manual_seed(0)
    return build(target_of("llama", "causal"), {"vocab_size": 64, "num_hidden_layers": 2}).model.train()


def moe(**options):
    """The balance of experts is one of all rows."""
    torch.manual_seed(0)
    whole = build(target_of("mixtral", "causal"), {"vocab_size": 64, "num_hidden_layers": 2}).model.train()
    there = parallelize(copy.deepcopy(whole), layout="fsdp2", device="cpu")
    part = IDS.chunk(2)[there.data_rank]
    if options:
        with contextlib.suppress(ApplyError):
            there(input_ids=part, labels=part, **options)
            return "it was not refused"
    whole(input_ids=IDS, labels=IDS).loss.backward()
    there(input_ids=part, labels=part).loss.backward()
    if options:
        there(input_ids=part, labels=part, **options)
    return difference(whole, there)


def gradients(model):
    found = model.state_dict() if not hasattr(model, "full_state_dict") else model.full_state_dict()
    return {name: one.clone() for name, one in found.items() if one.is_floating_point()}


def difference(whole, there):
    """Of all weights after a step."""
    for model in (whole, there):
        torch.optim.SGD(model.parameters(), lr=1.0).step()
    ours, others = gradients(whole), gradients(there)
    return max(float((ours[name] - others[name]).abs().max()) for name in ours)


def labelled(layout, rows, labels, weighted=False, **more):
    whole = causal()
    there = parallelize(copy.deepcopy(whole), layout=layout, device="cpu")
    whole(input_ids=IDS[:rows], labels=labels[:rows]).loss.backward()
    part, own = (one[:rows].chunk(2)[there.data_rank] for one in (IDS, labels))
    more = {name: value / 2 for name, value in more.items()}
    loss = there(input_ids=part, labels=own, **more).loss
    (loss * (2 * len(part) / rows) if weighted else loss).backward()
    return difference(whole, there)


def normed(layout, kind, norm, mode=True, **training):
    whole = made(kind, norm).train(mode)
    options = Training(**training) if training else None
    there = parallelize(copy.deepcopy(whole), layout=layout, example_inputs=(X,), training=options, device="cpu")
    there.train(mode)
    F.cross_entropy(whole(X), Y).backward()
    if layout == "pp2":
        there.step(X, target=Y)
    else:
        F.cross_entropy(there(X.chunk(2)[there.data_rank]), Y.chunk(2)[there.data_rank]).backward()
    return difference(whole, there)


def own_loss(loss, target=Y):
    whole = made(Norms)
    there = parallelize(
        copy.deepcopy(whole), layout="pp2", example_inputs=(X,), training=Training(chunks=2, loss=loss), device="cpu"
    )
    for _ in range(2):
        for one in (whole, there):
            for weight in one.parameters():
                weight.grad = None
        of_whole = loss(whole(X), target)
        of_whole.backward()
        of_there = there.step(X, target=target)
    assert torch.allclose(of_whole.detach(), of_there), (of_whole, of_there)
    return difference(whole, there)


def whole_in_place():
    parallelize(made(Norms), layout="fsdp2", example_inputs=(X,), device="cpu").unshard()


def hook_of_all():
    there = parallelize(made(Norms), layout="tp2", example_inputs=(X,), device="cpu")
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        there(X)
    finally:
        handle.remove()


def told(use, *args, **more):
    try:
        return use(*args, **more)
    except ApplyError as error:
        return str(error)


def similar_rows(out, target):
    return F.cross_entropy(out @ out.T, torch.arange(len(target)))


def summed_rows(out, target):
    return F.cross_entropy(out, target, reduction="sum")


def weighted_classes(out, target):
    return F.cross_entropy(out, target, WEIGHTS)


MASKED = Y.masked_fill(torch.arange(8) < 3, -100)
MEAN = {"chunks": 2, "loss": F.cross_entropy}
USES = {
    "all count": (labelled, "ddp2", 4, IDS),
    "some count": (labelled, "ddp2", 4, SOME),
    "some count, and how many": (labelled, "ddp2", 4, SOME),
    "three rows": (labelled, "fsdp2", 3, IDS),
    "three rows, weighted": (labelled, "fsdp2", 3, IDS, True),
    "batch norm": (normed, "ddp2", Norms, True),
    "batch norm in eval mode": (normed, "ddp2", Norms, True, False),
    "counter": (normed, "fsdp2", Counted, False),
    "writes in place": (normed, "fsdp2", Writes, False),
    "writes in place, copies": (normed, "ddp2", Writes, False),
    "writes in place, compiled": (normed, "fsdp2", Writes, False),
    "writes to its input": (normed, "pp2", WritesToInput, False),
    "batch norm in micro-batches": (normed, "pp2", Norms, True),
    "mean": (own_loss, F.cross_entropy),
    "sum": (own_loss, lambda out, target: F.cross_entropy(out, target, reduction="sum") / 8),
    "mean of labels that count": (own_loss, F.cross_entropy, MASKED),
    "sum of labels that count": (own_loss, lambda out, y: F.cross_entropy(out, y, reduction="sum") / 5, MASKED),
    "weights of classes": (own_loss, lambda out, target: F.cross_entropy(out, target, WEIGHTS)),
    "comparison of rows": (own_loss, similar_rows),
    "own mean": (scored, "ddp2", F.cross_entropy),
    "own sum": (scored, "ddp2", summed_rows),
    "own weights of classes": (scored, "fsdp2", weighted_classes),
    "own comparison": (scored, "ddp2", similar_rows),
    "own mean of other rows": (scored, "ddp2", F.cross_entropy, 6 + 1),
    "hook of all modules": (hook_of_all,),
    "whole in place": (whole_in_place,),
    "experts": (moe,),
    "balance of experts": (moe,),
}
MORE = {
    "writes in place, compiled": {"compile": True},
    "own sum": {"example_inputs": (X, Y)},
    "own comparison": {"example_inputs": (X,)},
    "some count, and how many": {"num_items_in_batch": (SOME[:, 1:] != -100).sum()},
    "batch norm in micro-batches": MEAN,
    "writes to its input": MEAN,
    "balance of experts": {"output_router_logits": True},
}


if __name__ == "__main__":
    results = {name: told(*given, **MORE.get(name, {})) for name, given in USES.items()}
    if torch.distributed.get_rank() == 0:
        print(json.dumps(results))
