"""The work of each process of `test_products.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.engine.group.spread import each_once
from tests.parallel.wrong_products import tried, zero_one


PLAN = """plan blocks
rule words embedding_rowwise
rule head colwise_gather_output
rule layers.*.gated packed_colwise parts=1:1
rule layers.*.back packed_rowwise parts=1:1
rule layers.*.wide colwise
rule layers.*.narrow rowwise
rule layers.*.bare colwise dim=0
rule layers.*.joined rowwise
"""


class Block(nn.Module):
    """Packed, unequal, bare and whole weights, a single number, and weights that a layer keeps in a list of its own."""

    def __init__(self):
        super().__init__()
        self.norm, self.scale = nn.LayerNorm(8), nn.Parameter(torch.tensor(0.7))
        self.gated, self.back = nn.Linear(8, 24), nn.Linear(24, 8)
        self.wide, self.narrow = nn.Linear(8, 7), nn.Linear(7, 8)
        self.bare, self.joined = nn.Parameter(torch.randn(12, 8)), nn.Linear(12, 8)
        self.memory = nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        x = self.norm(x) * self.scale
        gate, up = self.gated(x).chunk(2, -1)
        x = x + self.back(torch.cat([torch.tanh(gate), torch.sigmoid(up)], -1))
        x = x + self.narrow(torch.tanh(self.wide(x)))
        x = x + self.joined(torch.tanh(torch.einsum("bti,oi->bto", x, self.bare)))
        return x + self.memory(x)[0]


class Blocks(nn.Module):
    """A tied vocabulary of 13 around two blocks."""

    def __init__(self):
        super().__init__()
        self.words, self.layers = nn.Embedding(13, 8), nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 13, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())

    def generate(self, synced_gpus=None):
        return synced_gpus


def blocks():
    torch.manual_seed(0)
    return Blocks().double()


class Routed(nn.Module):
    """Rows go to one of two experts; an expert without rows is not called."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        chosen = (x[:, 0] > 0).long()
        parts = {number: self.experts[number](x[chosen == number]) for number in chosen.unique().tolist()}
        return sum(part.square().sum() for part in parts.values()) / len(x)


class Layers(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return sum(layer(x) for layer in self.layers)


def in_layout(layout, **training):
    plan = PLAN if "tp" in layout else None
    options = Training(**training) if training else None
    whole = blocks()
    whole.layers[0].scale.requires_grad_(False)  # and trained all the same later
    model = parallelize(whole, layout=layout, plan=plan, training=options, device="cpu", probe=False)
    model.get_parameter("layers.0.scale").requires_grad_(True)
    return model


def evaluate(model):
    """A forward without a backward, after which `fully_shard` leaves weights whole."""
    with torch.no_grad():
        return model(torch.arange(10).view(2, 5))


def routed():
    """The largest difference from one process after a step in which each data rank uses one expert."""
    torch.manual_seed(0)
    whole, rows = Layers(Routed(), Routed()).double(), torch.randn(4, 8).double()
    rows[:, 0] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    model = parallelize(copy.deepcopy(whole), layout="fsdp4", device="cpu", probe=False)
    for one, part in ((whole, rows), (model, rows[dist.get_rank()][None])):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        one(part).backward()
        optimizer.step()
    return furthest(model.full_state_dict(), whole.state_dict())


def whole_again():
    """The difference of a loss from one process after products of another type were asked for and taken back."""
    model = in_layout("tp4", compute_type=torch.bfloat16)
    evaluate(model)
    return float((evaluate(model.unshard()) - evaluate(blocks())).abs())


def skipping():
    model = blocks()
    model.layerdrop = 0.1
    said = refused(lambda: parallelize(model, layout="ddp4", device="cpu", probe=False))
    return said, type(model).__name__


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, number):
    """The mean loss of all data ranks, and the norm of the gradients."""
    torch.manual_seed(number)
    ids = torch.randint(0, 13, (4, 5))
    sharded = hasattr(model, "layout")
    loss = model(ids.chunk(model.layout.data)[model.data_rank] if sharded else ids)
    loss.backward()
    if sharded:
        norm, total = model.clip_grad_norm_(0.1), loss.detach() / dist.get_world_size()
        dist.all_reduce(total)
    else:
        norm, total = nn.utils.clip_grad_norm_(model.parameters(), 0.1), loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    return float(total), float(norm)


def furthest(found, expected):
    return max(float((found[name] - value).abs().max()) for name, value in expected.items())


def compared(layout, **training):
    """The largest difference from one process in three steps; and of DTensors put together by torch."""
    whole, model = blocks(), in_layout(layout, **training)
    optimizers = optimizer_of(whole), optimizer_of(model)
    pairs = [(step(whole, optimizers[0], n), step(model, optimizers[1], n)) for n in range(3)]
    worst = max(abs(a - b) for one, other in pairs for a, b in zip(one, other))
    evaluate(model)
    worst = max(worst, furthest(model.full_state_dict(), whole.state_dict()))
    said, kinds = 0.0, set()
    for one in each_once(model):
        kinds.update(kind.__name__ for kind in (DTensor, nn.Parameter) if kind in type(one.stored).__mro__)
        if isinstance(one.stored, DTensor) and (one.held is None or one.held.dtensor):
            said = max(said, float((one.stored.detach().full_tensor() - one.whole(one.stored)).abs().max()))
    return {"worst": worst, "said": said, "kinds": sorted(kinds), "synced": model.generate()}


def accumulated():
    """The difference from one process, and the fractions of the optimizer's state and of gradients on this process.

    Two forwards a step, between which gradients are not summed and weights stay gathered: ZeRO 1.
    """
    whole, model = blocks(), in_layout("fsdp4", reshard=False)
    optimizers, weights = (optimizer_of(whole), optimizer_of(model)), []
    for _ in range(3):
        for last in (False, True):
            ids = torch.randint(0, 13, (4, 5), generator=torch.Generator().manual_seed(int(last)))
            model.set_requires_gradient_sync(last)
            model.set_reshard_after_backward(last)
            (whole(ids) / 2).backward()
            (model(ids.chunk(4)[model.data_rank]) / 2).backward()
            held = [sum(_here(one).numel() for one in some.layers.parameters()) for some in (model, whole)]
            weights.append(held[0] / held[1])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    size = [sum(_here(one).numel() for state in o.state.values() for one in state.values()) for o in optimizers]
    return {
        "worst": furthest(model.full_state_dict(), whole.state_dict()),
        "state": size[1] / size[0],
        "weights": weights[:2],
    }


def _here(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def resumed(layouts):
    """The differences of the next losses from the run that went on, for each layout."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    path = Path(folder[0])
    model = in_layout(layouts[0])
    optimizer = optimizer_of(model)
    for number in range(2):
        step(model, optimizer, number)
        evaluate(model)
        model.save_checkpoint(path, optimizer, number + 1, {"place": number}, keep=1)
    went_on = [step(model, optimizer, number) for number in range(2, 12)]
    found = {"folders": sorted(one.name for one in path.iterdir())}
    for layout in layouts:
        again = in_layout(layout)
        with torch.no_grad():
            for one in again.parameters():
                one.mul_(0.0)
        other = torch.optim.AdamW(again.parameters(), lr=0.3, foreach=False)
        evaluate(again)
        said = again.load_checkpoint(path, other)
        assert said.step == 2 and said.notes == {"place": 1}
        assert other.param_groups[0]["lr"] == 1e-2 and other.param_groups[0]["foreach"] is False
        losses = [step(again, other, number) for number in range(2, 12)]
        found[layout] = max(abs(a - b) for one, two in zip(losses, went_on) for a, b in zip(one, two))
    found["notes"] = refused(lambda: model.save_checkpoint(path, optimizer, 3, {"when": dist}))
    model.save_checkpoint(path, optimizer, 1, keep=1)
    found["earlier"] = sorted(one.name for one in path.iterdir())
    return found


def refused(call):
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main():
    found = {"layouts": {layout: compared(layout) for layout in ("fsdp2.tp2", "ddp2.tp2", "tp4", "ddp2.fsdp2")}}
    found["layouts"]["zero 2"] = compared("fsdp2.tp2", reshard=False)
    found["layouts"]["host"] = compared("fsdp2.tp2", offload=True)
    found["resumed"] = resumed(["fsdp2.tp2", "tp4", "ddp4", "fsdp4"])
    found["accumulated"] = accumulated()
    found["routed"], found["again"], found["skipping"] = routed(), whole_again(), skipping()
    found["too many"] = refused(lambda: in_layout("fsdp4.tp2"))
    found["no data"] = refused(lambda: in_layout("tp4", offload=True))
    found["both"] = refused(lambda: in_layout("tp4", compile=True, recompute=True))
    found["wrong"], found["zero 1"] = tried(blocks, refused), zero_one(blocks, furthest)

    def other_seeds():
        torch.manual_seed(dist.get_rank() // 2)
        return parallelize(Blocks(), layout="fsdp2.tp2", plan=PLAN, device="cpu", probe=False)

    found["seeds"] = refused(other_seeds)
    return found


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = compared(sys.argv[1]) if len(sys.argv) > 1 else main()
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it
