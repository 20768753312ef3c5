"""Weights that data ranks gather, seen from one process that is all of the data ranks."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import in_process_group
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.shard.collectives import ProcessGroup


class Net(nn.Module):
    """Layers, and modules before and behind them, whose outputs are no linear functions of their inputs."""

    def __init__(self, act=None):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.act = act or nn.Tanh()

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = self.act(layer(x))
        return self.last(x).pow(2).sum()


class InPlace(nn.Linear):
    def forward(self, x):
        x += 1.0
        return super().forward(x)


@pytest.fixture
def both(monkeypatch):
    """From a model: it and a copy of it on data ranks."""
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    data, group = init_device_mesh("cpu", (1,), mesh_dim_names=("dp_shard",)), ProcessGroup(None)
    grid = ProcessGrid(group, group, None, data, Layout(), torch.device("cpu"))
    monkeypatch.setattr(in_process_group, "process_grid", lambda *args: grid)

    def made(model):
        return model, parallelize(copy.deepcopy(model), layout="tp1", device="cpu", plan="plan x\n")

    yield made
    dist.destroy_process_group()


def net(**more):
    torch.manual_seed(0)
    return Net(**more).double()


def inputs():
    return torch.linspace(-1, 1, 6).view(2, 3).double().requires_grad_(True)


def gradient(model, x):
    (found,) = torch.autograd.grad(model(x), x, create_graph=True)
    return found


def test_a_penalty_of_gradients_is_that_of_one_device(both):
    found = []
    for model in both(net()):
        (model(x := inputs()) + gradient(model, x).pow(2).sum()).backward()
        found.append([getattr(one.grad, "_local_tensor", one.grad) for one in model.parameters()])
    torch.testing.assert_close(*found)


def test_a_graph_whose_weights_were_freed_is_an_error(both):
    _, model = both(net())
    kept = gradient(model, inputs())
    (model(x := inputs()) + gradient(model, x).pow(2).sum()).backward()
    with pytest.raises(ApplyError, match="were freed by another backward or step"):
        kept.pow(2).sum().backward()


def test_a_forward_leaves_the_weights_of_a_graph_where_nothing_was_written(both):
    _, model = both(net())
    data = model.get_parameter("layers.0.weight").data
    x = inputs()
    penalty = gradient(model, x).pow(2).sum()
    model(inputs())
    penalty.backward()
    assert x.grad.any() and data is not None


def test_what_is_written_while_weights_stay_gathered_counts_in_the_next_forward(both):
    found = []
    for model in both(net()):
        data = model.get_parameter("layers.0.weight").data
        held = gradient(model, inputs())
        before = [model(inputs()).item() for _ in range(2)]
        data.mul_(2.0)
        found.append([*before, model(inputs()).item()])
        del held
    assert found[0] == pytest.approx(found[1])


def test_a_module_of_the_root_runs_by_itself_without_gradients(both):
    whole, model = both(net())
    with torch.no_grad():
        torch.testing.assert_close(model.first(inputs()), whole.first(inputs()))
    with pytest.raises(ApplyError, match="Linear was called by itself"):
        model.last(torch.ones(1, 4).double())


def test_a_layer_that_writes_to_what_it_gets_computes_what_it_does_on_one_device(both):
    changed = net(act=nn.SiLU())  # whose derivative does not read what it gives
    changed.layers[1] = InPlace(4, 4).double()
    found = []
    for model in both(changed):
        result = model(x := inputs())
        result.backward()
        gradients = [getattr(one.grad, "_local_tensor", one.grad) for one in model.parameters()]
        found.append([result.detach(), x.grad, *gradients])
    torch.testing.assert_close(*found)


class StateBesideWeight(torch.optim.Optimizer):
    """Makes its state without its weight, so that it is whole where the weight is a share."""

    @torch.no_grad()
    def step(self, closure=None):
        for weight in self.param_groups[0]["params"]:
            weight.add_(self.state[weight].setdefault("mean", torch.zeros(weight.shape)) + weight.grad)


def test_an_optimizer_whose_state_would_be_whole_makes_no_step(both):
    _, model = both(net())
    optimizer = StateBesideWeight(model.parameters(), {})
    model(inputs()).backward()
    before = model.full_state_dict()
    with pytest.raises(ApplyError, match="of a DTensor and a plain tensor"):
        optimizer.step()
    torch.testing.assert_close(model.full_state_dict(), before)


class Counting(torch.optim.SGD):
    """Counts the runs of its code."""

    runs = 0

    def step(self, closure=None):
        type(self).runs += 1
        return super().step(closure)


def test_an_optimizer_is_tried_before_its_first_step_alone(both):
    _, model = both(net())
    optimizer, before = Counting(model.parameters()), []
    for _ in range(3):
        model(inputs()).backward()
        optimizer.step()
        before.append(Counting.runs)
    assert before[0] > 1 and [one - before[0] for one in before] == [0, 1, 2]


class Mapped:
    """A value that torch's trees know, as other packages make their classes known."""

    def __init__(self, x):
        self.x = x


pytree.register_pytree_node(Mapped, lambda one: ([one.x], None), lambda children, _: Mapped(*children))


class Noting(nn.Linear):
    """Notes something on an object that it gets."""

    def forward(self, x, kept):
        kept.seen = True
        return super().forward(x)


class Handing(Net):
    def forward(self, x):
        kept = Mapped(x)
        x = self.first(x)
        for layer in self.layers:
            x = self.act(layer(x, kept))
        assert kept.seen
        return self.last(x).pow(2).sum()


def test_layers_get_the_objects_that_the_model_hands_them(both):
    handing = Handing().double()
    handing.layers = nn.ModuleList(Noting(4, 4).double() for _ in range(2))
    for model in both(handing):
        model(inputs()).backward()


def test_gathered_weights_are_no_weights_of_an_optimizer_and_keep_what_they_train(both):
    whole, model = both(net())
    held = gradient(model, inputs())
    assert not isinstance(model.first.weight, DTensor) and all(isinstance(one, DTensor) for one in model.parameters())
    model.first.weight.requires_grad_(False)
    with pytest.raises(ApplyError, match="weight of a Linear was frozen or thawed between a forward and its backward"):
        model(inputs())
    model.first.weight.requires_grad_(True)
    assert model(inputs()).item() == pytest.approx(whole(inputs()).item()) and held is not None
    optimizer = torch.optim.SGD([model.first.weight])
    with pytest.raises(ApplyError, match="its first.weight is a copy that was gathered for products"):
        optimizer.step()
    torch.optim.SGD(model.parameters()).step()
