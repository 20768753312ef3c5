"""The work of each process of `test_training.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel import parallelize
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.proof.judge import relative_error
from modular_converter.parallel.tiny.build import build, target_of


MAX_NORM = 0.05


def step(model, inputs, optimizer, clip):
    model.train()
    loss = model(input_ids=inputs["input_ids"], labels=inputs["input_ids"]).loss
    loss.backward()
    norm = clip(MAX_NORM)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), float(norm)


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def furthest(state, other):
    """The largest error of a tensor over its largest entry: optimizers divide rounding by rounding in small ones."""
    pairs = [(state[name].float(), other[name].float()) for name in other]
    return max(relative_error(one, two, float(two.abs().max()) or 1.0) for one, two in pairs)


class ByNorm(torch.optim.Optimizer):
    """A step of the length of each weight, or gradients that are clipped weight by weight."""

    def __init__(self, weights, clip):
        super().__init__(weights, {"clip": clip})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                if group["clip"]:
                    torch.nn.utils.clip_grad_norm_(one, 1e-3)
                one.sub_(one.grad if group["clip"] else one.grad * (one.norm() / one.grad.norm()), alpha=0.01)


def refused(call):
    try:
        return f"no error: {call()}"
    except ApplyError as error:
        return f"{type(error).__name__}: {error}"


def statistics(model):
    """What is said of statistics of shares that are plain tensors, of which `model.parameters()` must have some."""
    weights = list(model.parameters())
    for one in weights:
        one.grad = torch.full_like(one, 0.5)
    before = model.full_state_dict()
    clip, part = torch.nn.utils.clip_grad_norm_, model.get_parameter("model.layers.0.self_attn.q_proj.weight")
    found = {"by norm": refused(ByNorm(weights, False).step), "clipped": refused(ByNorm(weights, True).step)}
    with torch.no_grad():
        found["by hand"] = refused(lambda: [one.grad.mul_(1e-3 / one.grad.norm()) for one in weights])
        found["by hand, data"] = refused(lambda: [float(one.detach().abs().max()) for one in weights])
        found["finite"] = refused(lambda: all(torch.isfinite(one.grad).all() for one in weights))
    found |= {"norm of one": refused(lambda: clip(part, 1.0)), "norm of all": refused(lambda: clip(weights, 1.0))}
    model.zero_grad()
    return found | {"kept": furthest(model.full_state_dict(), before) == 0.0}


def main(name, heads, meshed):
    # A vocabulary that no number of ranks divides, and key/value heads: there can be fewer than ranks.
    small = build(target_of(name, "causal"), {"vocab_size": 157, "num_key_value_heads": heads})
    whole, inputs = small.model, small.inputs
    for module in whole.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # what is dropped of a share differs from what is dropped of the whole
    start = {key: value.clone() for key, value in whole.state_dict().items()}
    sharded, mesh = copy.deepcopy(whole), None
    if meshed:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    parallelize(sharded, mesh=mesh["model"] if mesh is not None else None, device="cpu")
    said = statistics(sharded)
    elements = sum(p.numel() for p in sharded.parameters())
    found = {"numbers": elements == sum(p.numel() for p in whole.parameters())}
    stored = sum(p.untyped_storage().nbytes() for p in sharded.parameters() if not isinstance(p, DTensor))
    found["shares"] = 0 < stored < 0.8 * sum(p.untyped_storage().nbytes() for p in whole.parameters())
    found |= said
    found["full_before"] = furthest(sharded.full_state_dict(), start)
    model = sharded
    if meshed:
        model = torch.nn.parallel.DistributedDataParallel(sharded, process_group=mesh["data"].get_group())
    one, two = optimizer_of(whole), optimizer_of(sharded)
    found["steps"] = []
    for _ in range(3):
        a = step(whole, inputs, one, lambda norm: torch.nn.utils.clip_grad_norm_(whole.parameters(), norm))
        b = step(model, inputs, two, sharded.clip_grad_norm_)
        found["steps"].append([abs(a[0] - b[0]) / abs(a[0]), abs(a[1] - b[1]) / a[1]])
    found["norm"] = a[1]
    trained = {key: value.clone() for key, value in whole.state_dict().items()}
    full = sharded.full_state_dict()
    found["trained"], found["moved"] = furthest(full, trained), furthest(full, start)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    sharded.save_pretrained(folder[0])
    loaded = type(whole).from_pretrained(folder[0])
    found["saved"] = furthest(loaded.state_dict(), full)
    sharded.load_full_state_dict(start)
    found["loaded"] = furthest(sharded.full_state_dict(), start)
    sharded.load_full_state_dict(trained)
    sharded.unshard()
    found["unsharded"] = furthest(sharded.state_dict(), trained)
    found["class"] = type(sharded) is type(whole)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3)
