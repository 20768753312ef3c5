"""The last process alone does otherwise with its part of a batch; each process prints what it is told, and whether in time."""

import functools
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.engine.group import let_go, same_calls
from tests.parallel.settings_script import IDS, llama
from tests.parallel.two_runs import tell_of_two_runs


ROWS = torch.ones(2, 4)


class Branches(nn.Module):
    """What runs depends on the sign of what it gets."""

    def __init__(self, writes=False, skips=False, turns=False, count=3):
        super().__init__()
        self.writes, self.skips, self.turns = writes, skips, turns
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(count))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        other = bool(x.detach().sum() < 0)  # in each stage, of what this process was given
        if self.writes and other:
            self.seen += 1
        layers = list(self.layers)
        for number, layer in enumerate(layers[::-1] if self.turns and other else layers):
            if not (self.skips and other and number == len(layers) // 2 - (len(layers) == 8)):
                x = x + layer(x)
        return x


def fails(*_):
    raise ValueError("of one process")


def own(layout, **options):
    layout, _, schedule = layout.partition(" ")
    training = Training(chunks=2, loss=squares, schedule=schedule or "1F1B") if "pp" in layout else None
    more = {} if training is None else {"training": training}
    options |= {"count": 8} if schedule else {}  # two layers in each of two stages a process
    return parallelize(Branches(**options), layout=layout, device="cpu", example_inputs=(ROWS,), probe=False, **more)


def squares(output, target):
    return (output - target).pow(2).mean()


def step(model, rows):
    if hasattr(model, "step"):
        return model.step(rows, target=ROWS)
    model(rows).pow(2).mean().backward()


def stepping(option, layout, alone):
    """A step in which the process alone has other rows, by which a model with this option computes otherwise."""
    model = own(layout, **{option: True})
    return lambda: step(model, -ROWS if alone else ROWS)


def calling(option, layout, alone):
    """The same of a call without gradients."""
    model = own(layout, **{option: True})
    return torch.no_grad()(lambda: model(-ROWS if alone else ROWS))


writes, skips, turns = (functools.partial(stepping, one) for one in ("writes", "skips", "turns"))
skips_without_gradients, turns_without_gradients = (functools.partial(calling, one) for one in ("skips", "turns"))


def labels(layout, alone):
    model = parallelize(llama(), layout=layout, device="cpu", probe=False)

    def run():
        if alone:
            model(input_ids=IDS, labels=IDS).loss.backward()
        else:
            model(input_ids=IDS).logits.mean().backward()

    return run


def forward(layout, alone):
    model = own(layout)
    if alone:
        model.layers[1].register_forward_pre_hook(fails)
    return lambda: step(model, ROWS)


def backward(layout, alone):
    model = own(layout)
    if alone:
        model.layers[1].register_forward_hook(lambda m, a, result: result.register_hook(fails) and None)
    return lambda: step(model, ROWS)


def graph(layout, alone):
    model = own(layout)

    def run():
        rows = ROWS.clone().requires_grad_()
        loss = model(rows).pow(2).mean()
        if alone:
            loss = loss + torch.autograd.grad(loss, rows, create_graph=True)[0].pow(2).mean()
        loss.backward()

    return run


def stops(layout, alone):
    model, done = own(layout), []

    def run():
        if alone and done:
            time.sleep(4.0)
            sys.exit()
        done.append(step(model, ROWS))

    return run


def whole(layout, alone):
    model = own(layout)
    same_calls.LIMIT_S = 2.0
    weight = next(model.parameters())
    return lambda: weight.full_tensor() if alone else time.sleep(3.0)


def starts(layout, alone):
    def run():
        model = Branches()
        if alone:
            model.layers[0][0].weight.register_hook(fails)
        parallelize(model, layout=layout, device="cpu", example_inputs=(ROWS,), probe=False)

    return run


def main(case, layout):
    """Tell what each of two runs says."""
    torch.manual_seed(0)
    run = globals()[case](layout, dist.get_rank() == dist.get_world_size() - 1)
    let_go.REFUSED_LIMIT_S = 1.0
    tell_of_two_runs(run, stays_s=3.0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(*sys.argv[1:])
