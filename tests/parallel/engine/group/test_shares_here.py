"""Weights of the tensor dimension as one process holds them: products with them, and what other code sees."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import held_weights, in_process_group
from modular_converter.parallel.engine.group.held_weights import hide_sizes, hold_weights, show_sizes
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.group.same_settings import modules_with_shares
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup, ProcessGroup


PLAN = "plan x\nrule up colwise\nrule down rowwise\n"


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.width = nn.Linear(3, 6), nn.Linear(6, 3), 6

    def forward(self, x):
        return self.down(self.up(x).tanh().view(-1, self.width))


@pytest.fixture
def alone():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_model_of_dtensors_trains_as_on_one_device(alone, monkeypatch):
    mesh, group = init_device_mesh("cpu", (1,)), ProcessGroup(None)
    grid = ProcessGrid(group, group, mesh, None, Layout(), torch.device("cpu"))
    monkeypatch.setattr(in_process_group, "process_grid", lambda *args: grid)
    whole, x = Heads(), torch.randn(2, 3)
    model = parallelize(copy.deepcopy(whole), layout="tp1", device="cpu", plan=PLAN)
    for one in (model, whole):
        one(x).pow(2).sum().backward()
    for one, two in zip(model.parameters(), whole.parameters()):
        assert isinstance(one, DTensor) and one.shape == two.shape
        torch.testing.assert_close(one.grad.full_tensor(), two.grad)
    torch.testing.assert_close(model.up(x), whole.up(x))
    torch.testing.assert_close(model.full_state_dict(), dict(whole.state_dict()))


def test_a_model_for_inference_shows_whole_weights(alone):
    whole, x = Heads(), torch.randn(2, 3)
    model = parallelize(
        copy.deepcopy(whole), mesh=init_device_mesh("cpu", (1,)), device="cpu", plan=PLAN, inference=True
    )
    torch.testing.assert_close(model(x), whole(x).detach())
    assert torch.equal(model.up.weight.detach() + 0, whole.up.weight) and model.down.weight.shape == (3, 6)


def half():
    """One of two processes of the model, whose shares are plain tensors."""
    model = Heads()
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
    applied = apply(model, Plan.parse(PLAN + "attribute :width\n"), FakeGroup(2))
    hold_weights(applied, shapes, None, True)
    return applied


def test_a_part_that_holds_a_share_alone_computes_nothing_by_itself():
    model = half().model
    assert held_weights._whole(model.down, "bias") is model.down._parameters["bias"]
    with pytest.raises(ApplyError, match="a Linear that holds this process's share was called by itself"):
        held_weights._whole(model.up, "weight")


def test_what_code_sets_of_a_size_is_read_until_the_next_call_refuses_it():
    applied = half()
    model = applied.model
    changed = hide_sizes(applied)
    assert model.width == 6
    model.width = 4
    assert model.width == 4
    show_sizes(changed)


def test_hooks_of_a_model_that_is_one_layer_get_whole_tensors():
    layer = nn.Linear(4, 4)
    applied = apply(layer, Plan.parse("plan x\nrule weight colwise\n"), FakeGroup(2))
    layer.__dict__["_applied"] = applied
    assert modules_with_shares(layer) == {}
    model = Heads()
    model.__dict__["_applied"] = apply(model, Plan.parse(PLAN), FakeGroup(2))
    assert modules_with_shares(model) == {"up": True, "down": True}
