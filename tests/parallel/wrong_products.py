"""Wrong layouts and wrappers that four processes of `products_script.py` try: each is an error before the first step."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from modular_converter.parallel import Training, parallelize


# Shares of equal lengths: torch would take those of other processes for its own.
EVEN = "plan blocks\nrule layers.*.bare colwise dim=0\nrule layers.*.joined rowwise\n"
IDS = torch.arange(10).view(2, 5)


def tried(blocks, refused):
    """The message of each error, of a model that ``blocks`` makes."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tp"))
    data, tensor = mesh["data"].get_group(), mesh["tp"].get_group()

    def plain():
        model = blocks()
        for layer in model.layers:  # `fully_shard` takes no single numbers
            layer.scale = nn.Parameter(layer.scale.detach().view(1))
        return model

    def meshed():
        return parallelize(plain(), mesh=mesh["tp"], plan=EVEN, device="cpu", probe=False)

    def layout(layout, model=None, **training):
        plan, options = EVEN if "tp" in layout else None, Training(**training) if training else None
        model = plain() if model is None else model
        return parallelize(model, layout=layout, plan=plan, training=options, device="cpu", probe=False)

    def step(model, optimizer=None):
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
        model(IDS).backward()
        optimizer.step()

    def by_hand(mesh, whole):
        model = meshed()
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        step(fully_shard(model, mesh=mesh) if whole else model)
        return model

    def zero(model, group=None):
        step(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, group, lr=0.1))

    replicas, rank = nn.parallel.DistributedDataParallel, dist.get_rank()
    cases = {
        "replicas of DTensors": lambda: replicas(layout("tp4")),
        "replicas over all": lambda: replicas(meshed()),
        "replicas over a mesh": lambda: replicas(meshed(), device_mesh=mesh["tp"]),
        "replicas over a group": lambda: replicas(meshed(), None, None, 0, True, True, tensor),
        "replicas of a layer": lambda: replicas(meshed().layers[0]),
        "fully_shard over tensors": lambda: by_hand(mesh["tp"], True),
        "fully_shard over all": lambda: by_hand(None, True),
        "fully_shard of layers": lambda: by_hand(mesh["tp"], False),
        "fully_shard over data": lambda: by_hand(mesh["data"], True) and None,
        "a norm of shares behind it": lambda: by_hand(mesh["data"], True).layers[0].bare.grad.norm(),
        "ZeRO 1 over all": lambda: zero(meshed()),
        "ZeRO 1 over data": lambda: zero(meshed(), data),
        "ZeRO 1 of DTensors": lambda: zero(layout("tp4")),
        "twice": lambda: layout("tp4", layout("tp4")),
        "a part again": lambda: layout("ddp4", layout("tp4").layers[0]),
        "around": lambda: layout("ddp4", nn.Sequential(layout("ddp4"))),
        "wrapped": lambda: layout("ddp4", replicas(plain())),
        "without data": lambda: layout("tp4", plain().to("meta")),
        "other layouts": lambda: layout(("ddp2.tp2", "fsdp2.tp2")[rank % 2]),
        "other models": lambda: layout("ddp4", nn.Linear(8, 8 + rank)),
        "other batches": lambda: layout("tp4")(IDS + rank),
        "stages without chunks": lambda: layout("pp2.tp2"),
        "chunks without stages": lambda: layout("ddp4", chunks=2),
        "a divided backward": lambda: layout("pp2.tp2", chunks=2, schedule="ZBVZeroBubble"),
        "compiled stages": lambda: layout("pp2.tp2", chunks=2, compile=True),
        "stages of no library": lambda: layout("pp2.ddp2", chunks=2),
        "other batches of data ranks": lambda: layout("ddp2.tp2")(IDS[: 1 + rank // 2, : 2 + rank // 2]) and None,
    }
    return {name: refused(call) for name, call in cases.items()}


def zero_one(blocks, furthest):
    """The furthest weight from one process after steps of ZeRO 1 with replicas of two shares."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tp"))
    whole, group = blocks(), mesh["data"].get_group()
    sharded = parallelize(blocks(), mesh=mesh["tp"], plan=EVEN, device="cpu", probe=False)
    replicas = nn.parallel.DistributedDataParallel(sharded, process_group=group)
    optimizers = (
        torch.optim.AdamW(whole.parameters(), lr=1e-2),
        ZeroRedundancyOptimizer(sharded.parameters(), torch.optim.AdamW, group, lr=1e-2),
    )
    for number in range(2):
        torch.manual_seed(number)
        ids = torch.randint(0, 13, (4, 5))
        parts = ids, ids.chunk(2)[mesh["data"].get_local_rank()]
        for model, optimizer, part in zip((whole, replicas), optimizers, parts):
            model(part).backward()
            optimizer.step()
            optimizer.zero_grad()
    return furthest(sharded.full_state_dict(), whole.state_dict())
