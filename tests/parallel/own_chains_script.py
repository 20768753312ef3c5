"""The work of each process of `test_own_chains.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel import Pipeline, Training, derive_pipeline, parallelize
from tests.parallel.own_chains import (
    Any,
    Centred,
    Chain,
    Chosen,
    Counting,
    HandingMixed,
    Parts,
    Scored,
    Unscored,
    leading,
    loss,
    made,
    rows,
)


def furthest(found, expected):
    return max(float((found[name] - value).abs().max()) for name, value in expected.items() if name in found)


def here(parameter):
    """The entries of a parameter on this process."""
    return (parameter.to_local() if isinstance(parameter, DTensor) else parameter).numel()


def trained(step, parameters):
    """The losses of three steps."""
    optimizer, losses = torch.optim.SGD(parameters, lr=0.1), []
    for _ in range(3):
        losses.append(float(step()))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def plainly(model, inputs, target):
    def step():
        found = loss(model(*inputs), target)
        found.backward()
        return found.detach()

    return step


def compared(name, layout):
    """The largest differences from one process: of an output, of losses, of weights after three steps."""
    whole, inputs = made(name)
    whole = whole.double()
    inputs = tuple(one.double() if one.is_floating_point() else one for one in inputs)
    target = torch.randn_like(leading(whole(*inputs)))
    dist.broadcast(target, 0)
    model, staged = copy.deepcopy(whole), "pp" in layout
    how = {"layout": layout, "device": "cpu", "example_inputs": inputs}
    if layout == "Pipeline":
        model = Pipeline(model, chunks=2, loss=loss, example_inputs=inputs, device="cpu")
    elif staged:
        model = parallelize(model, **how, training=Training(chunks=2, loss=loss))
    else:
        model = parallelize(model, **how)
    staged = staged or layout == "Pipeline"
    want = leading(whole.eval()(*inputs)).detach()
    got = model.eval()(*inputs)
    last = got is not None
    output = float((leading(got).detach() - want).abs().max()) if last else 0.0
    step = (lambda: model.step(*inputs, target=target)) if staged else plainly(model.train(), inputs, target)
    model.train()
    losses = trained(plainly(whole.train(), inputs, target), whole.parameters()), trained(step, model.parameters())
    if hasattr(model, "full_state_dict"):
        state = model.full_state_dict()
    else:
        state = {name: value.detach() for name, value in model.named_parameters() if not value.is_meta}
    share = sum(here(p) for p in model.parameters() if not p.is_meta) / sum(p.numel() for p in whole.parameters())
    found = [output, max(abs(a - b) for a, b in zip(*losses)), furthest(state, whole.state_dict()), share]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, (found, len(state)))
    return [max(one[n] for one, _ in every) for n in range(4)] + [min(count for _, count in every)]


def refused(call):
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def of_first_batch(module):
    """A forward of a module without example inputs, of one row and of several."""
    shared_out = parallelize(alike(module), layout="ddp2", device="cpu")
    return [len(shared_out(rows(number))) for number in (1, 4, 4)]


def alike(module):
    """With the first process's weights."""
    dist.broadcast_object_list(weights := [module.state_dict()])
    module.load_state_dict(weights[0])
    return module


def main(layouts="", names=""):
    dist.init_process_group("gloo")
    if layouts:
        found = {
            f"{layout} {name}": compared(name, layout) for layout in layouts.split(",") for name in names.split(",")
        }
    else:
        found = {}
        whole, inputs = made("chain")
        small = derive_pipeline(whole, inputs)
        given = Pipeline(copy.deepcopy(whole), chunks=2, plan=small, loss=loss, device="cpu", balance=(1, 3))
        named = {"x": rows()}
        scored = alike(Scored())
        labels = rows()[..., :3]
        untried = Pipeline(copy.deepcopy(scored), chunks=2, example_inputs=named, device="cpu")
        labelled = {"chunks": 2, "example_inputs": (rows(), labels), "device": "cpu"}
        staged = Pipeline(copy.deepcopy(scored), **labelled)
        unscored = Pipeline(Unscored(), **labelled)
        counting = Pipeline(alike(Counting()), chunks=2, example_inputs=named, loss=loss, device="cpu")
        chosen, mixed = alike(Chosen()), Chain()
        mixed.layers[0].up.double()
        given_here = {"layout": "fsdp2", "example_inputs": named, "device": "cpu"}
        shared_out = parallelize(copy.deepcopy(chosen), **given_here)
        found["integers"] = float((shared_out(rows()) - chosen(rows())).abs().max())
        found["own loss"] = float(staged.step(rows(), labels=labels) - scored(rows(), labels)[1].detach())
        found["said"] = {
            "mixed rows": refused(lambda: Pipeline(Centred(), chunks=2, example_inputs=named, device="cpu")),
            "mixed with data ranks": refused(lambda: parallelize(Centred(), **given_here)),
            "mixed in the first batch": refused(lambda: of_first_batch(Centred())),
            "handed to mixed rows": refused(lambda: of_first_batch(HandingMixed())),
            "alone in the first batch": refused(lambda: of_first_batch(Chain())),
            "untried loss": refused(lambda: untried.step(rows(), labels=labels)),
            "other number": refused(
                lambda: Pipeline(Any(), chunks=2, example_inputs=(rows(),) * 2, device="cpu")(rows())
            ),
            "counts": refused(lambda: counting.step(rows(), target=torch.zeros(8, 3))),
            "types": refused(lambda: parallelize(alike(mixed), **given_here)),
            "no loss": refused(lambda: unscored.step(rows(), labels=labels)),
            "no layers": refused(lambda: Pipeline(Parts(), chunks=2, example_inputs=named, device="cpu")),
            "nothing given": refused(lambda: Pipeline(copy.deepcopy(whole), chunks=2, device="cpu")),
            "wrong plan": refused(lambda: Pipeline(copy.deepcopy(whole), chunks=2, plan="plan x", device="cpu")),
            "too many": refused(lambda: given.step(rows(), rows(), target=rows())),
            "twice": refused(lambda: given.step(rows(), x=rows(), target=rows())),
            "repr": repr(given),
        }
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
