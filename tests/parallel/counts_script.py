"""What code reads and writes of weights beside calls, under torchrun; the first process prints its results as JSON."""

from __future__ import annotations

import copy
import json

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from modular_converter.parallel import parallelize
from modular_converter.parallel.errors import ApplyError


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))


def numbers(model):
    """Sums and counts in each order, since torch keeps a choice that it has made for the next."""
    weights = [one.detach() for one in model.parameters()]
    first, last = weights[0], weights[-1]
    counts = [(one > 0).sum() for one in weights]
    found = [
        first.sum() + counts[-1],
        counts[0] + counts[-1],
        counts[0] + 5,
        sum(counts),
        5 - counts[0],
        first.sum() + 5,
    ]
    found += [
        first.sum() + 5,
        counts[0] + 5,
        (first > 0).sum(0).sum() + 1,
        first.mean() * 3 + 1,
        last.sum() + counts[0] + 2,
    ]
    rows = first.sum(0)
    for dim in (0, -1):
        found += [(first.sum(dim) + counts[0] + 5).norm(), (first.sum(dim) + first.abs().sum(dim) + 1).norm()]
        found += [
            (first.sum(dim) + 5).norm(),
            (1 + first.sum(dim)).norm(),
            torch.add(first.sum(dim), 5, alpha=2).norm(),
        ]
    found += [(first.T @ first + 1).norm(), (rows + rows).norm(), (torch.einsum("ij,ij->j", first, first) + 1).norm()]
    return [float(one) for one in found]


def said(call):
    try:
        return f"no error: {call()}"
    except (ApplyError, RuntimeError) as error:
        return str(error)


def stepped_between(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first, second = (model(torch.full((2, 4), number)).pow(2).sum() for number in (1.0, 2.0))
    first.backward()
    optimizer.step()
    return said(second.backward)


def after_writes(model):
    """The gradient of a forward behind a write, of modules called one by one where processes have the same batch."""
    model.zero_grad()
    with torch.no_grad():
        model.get_parameter("0.weight").mul_(2)
    inner = model(torch.ones(2, 4)) if hasattr(model, "reshard") else model[2](model[1](model[0](torch.ones(2, 4))))
    inner.pow(2).sum().backward()
    return whole(model.get_parameter("0.weight").grad)


def fail(gradient):
    raise RuntimeError("my own")


def own_error(model):
    loss = model(torch.ones(2, 4)).sum()
    with torch.no_grad():
        model.get_parameter("2.bias").mul_(2)
    loss.register_hook(fail)
    return said(loss.backward)


def copied(model):
    other = net().requires_grad_(False)
    with torch.no_grad():
        for own, new in zip(model.parameters(), other.parameters(), strict=True):
            own.copy_(new.add_(1))
        same = far(model.full_state_dict(), other.state_dict())
        model.get_parameter("2.bias").copy_(torch.tensor(2.0))
        model.get_parameter("0.weight").copy_(torch.arange(4.0))  # a row for all
    state = model.full_state_dict()
    return same, state["2.bias"].tolist(), state["0.weight"].tolist()


# Writes to views, of weights and of gradients.
OF_VIEWS = (
    lambda one: one[3].zero_(),
    lambda one: one.data[:2].mul_(3),
    lambda one: torch.chunk(one, 2)[1].add_(1),
    lambda one: one.view(-1)[5:9].fill_(0.5),
    lambda one: [row.mul_(number) for number, row in enumerate(one.unbind())],
    lambda one: one.T[1:].diagonal().neg_(),
    lambda one: one.permute(1, 0)[1, 2:].copy_(torch.ones(len(one) - 2)),
    lambda one: torch.add(one[1], one[2], out=one[0]),
    lambda one: nn.init.constant_(one.narrow(1, 1, 2)[2:], 0.25),
    lambda one: one[1:3].detach().sub_(1),
    lambda one: one.split(3)[0].__setitem__((1, 2), 7.0),
    lambda one: [
        part.mul_(whole(part).sum().sigmoid()) for part in (one[1], one[:3], one[:, 2])
    ],  # each sees what was written
)


def halve(weight):
    weight.grad[2:].mul_(0.5)


def through_views(model):
    """Weights, and gradients after their hooks, that code has written through views."""
    model.zero_grad()
    handles = [one.register_post_accumulate_grad_hook(halve) for one in model.parameters()]
    (model(torch.ones(2, 4)) ** 2).mean().backward()
    for one in handles:
        one.remove()
    with torch.no_grad():
        for write in OF_VIEWS:
            for one in (each for each in model.parameters() if each.dim() == 2):
                write(one)
                write(one.grad)
        answer = model(torch.ones(2, 4))
    return [*(whole(tensor) for each in model.parameters() for tensor in (each.detach(), each.grad)), answer]


def with_own(model):
    """Weights, gradients and numbers of operations with tensors of the caller's own."""
    model.zero_grad()
    weight, drawn = model.get_parameter("0.weight"), torch.Generator().manual_seed(3)
    own = torch.randn(6, 4, generator=drawn)
    penalty = ((weight - own) ** 2).sum() + (own[:3] @ weight.T).sigmoid().mean()
    ((model(torch.ones(2, 4)) ** 2).mean() + whole(penalty)).backward()
    with torch.no_grad():
        weight.grad *= own > 0
        weight.add_(own, alpha=0.1).masked_fill_(own > 1, 0.5)
        weight[own < -1] = 0.25
        weight.copy_(torch.where(own > 0.5, own, weight))
        bias = model.get_parameter("2.bias")
        bias.grad = torch.ones(4)
        torch._foreach_add_([weight, bias], [own, torch.ones(4)])
        torch.optim.SGD([bias], 0.1).step()
        bias.grad = None  # of a plain one, fully_shard takes no sum
        found = [torch.stack([weight.detach(), own]), nn.functional.linear(own, weight), *model.parameters()]
    return [whole(one.detach()) for one in (*found, weight.grad)]


def in_halves(model):
    """The gradient of a loss of the caller's own, in which a whole weight meets this data rank's half of the batch."""
    batch, weight = torch.arange(8.0).view(2, 4).sin(), model.get_parameter("0.weight")
    if hasattr(model, "reshard"):
        batch = batch[dist.get_rank() :][:1]
    model.zero_grad()
    (model(batch) @ whole(weight).T).logsumexp(-1).mean().backward()
    return whole(weight.grad)


def with_others(model):
    """What operations say of tensors that are not those of all processes, or are no numbers alone."""
    weight = model.get_parameter("0.weight").detach()
    own = torch.full((6, 4), float(dist.get_rank()))
    needs = torch.ones(6, 4, requires_grad=True)
    others = [lambda: weight + own, lambda: weight.masked_fill_(own > 0, 0), lambda: weight.copy_(own)]
    return [said(call) for call in (*others, lambda: weight * needs, lambda: own.add_(weight))]


def far(state, other):
    return max(float((state[name] - value).abs().max()) for name, value in other.items())


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main():
    dist.init_process_group("gloo")
    found = {}
    for layout in ("fsdp2", "ddp2", "tp2"):
        one = net()
        model = parallelize(copy.deepcopy(one), layout=layout, device="cpu", plan="plan x\n")
        with torch.inference_mode():  # the first forward of all
            first = float((model(torch.ones(2, 4)) - one(torch.ones(2, 4))).abs().max())
        model(torch.ones(2, 4)).sum().backward()
        weight = model.get_parameter("0.weight")
        found[layout] = {
            "first": first,
            "numbers": (numbers(model), numbers(one)),
            "hook": said(lambda weight=weight: weight.register_hook(lambda gradient: gradient)),
            "written": float((after_writes(model) - after_writes(one)).abs().max()),
            "views": max(float((a - b).abs().max()) for a, b in zip(*map(through_views, (model, one)), strict=True)),
            "own tensors": max(
                float((a - b).abs().max()) for a, b in zip(with_own(model), with_own(one), strict=True)
            ),
            "halves": float((in_halves(model) - in_halves(one)).abs().max()),
            "between": stepped_between(model),
            "own": own_error(model),
            "arrays": [said(weight.detach().numpy), said(lambda weight=weight: numpy.asarray(weight.detach()))],
            "state": said(lambda model=model: net().load_state_dict(model.state_dict())),
            "whole": said(lambda model=model: net().load_state_dict(model.full_state_dict())),
            "other tensors": with_others(model),
            "copied": copied(model),
        }
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
