"""What is changed in torch acts once, whoever wraps it before or after, and goes with the last model."""

import contextlib
import functools
import gc

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.utils import clip_grad_norm_

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import torch_patches
from modular_converter.parallel.engine.group.process_grid import mesh_of
from modular_converter.parallel.engine.group.torch_patches import (
    PATCHES,
    AssignedData,
    AssignedGradient,
    Patch,
    Patches,
    on_whole,
)
from modular_converter.parallel.errors import ApplyError


@pytest.fixture(autouse=True)
def _without_models_of_other_tests():
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step()  # they go with their groups


class Of:
    def said(self, text):
        return [text]


def around(users, own, self, text):
    return ["ours", *own(self, text)]


class User:
    pass


def wrapped(own):
    """Another library's wrapper, which copies the name and the attributes of what it wraps."""

    @functools.wraps(own)
    def theirs(*args, **kwargs):
        return ["theirs", *own(*args, **kwargs)]

    return theirs


@pytest.fixture
def patches():
    own = Of.said
    yield Patches([Patch(Of, "said", around)], lambda users, optimizer, *args: optimizer.seen.append(len(users)))
    Of.said = own


def test_a_function_is_as_before_when_the_last_user_has_gone(patches):
    own, first, second = Of.said, User(), User()
    patches.enter(first)
    patches.enter(first)
    patches.enter(second)
    assert Of().said("x") == ["ours", "x"]
    patches.leave(first)
    assert Of().said("x") == ["ours", "x"]
    del second
    gc.collect()
    assert Of.said is own and patches.handle is None


def test_steps_of_optimizers_are_looked_at_once_and_only_while_there_are_users(patches, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(torch_patches, "together", contextlib.nullcontext)  # calls of models of other tests
    optimizer, user = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), User()
    optimizer.seen = []
    for _ in range(2):
        patches.enter(user)
        optimizer.step()
        patches.leave(user)
        optimizer.step()
    assert optimizer.seen == [1, 1]


def test_wrappers_before_and_behind_ours_do_not_switch_it_off(patches):
    own = Of.said
    Of.said = before = wrapped(own)
    user = User()
    patches.enter(user)
    assert Of().said("x") == ["ours", "theirs", "x"]
    Of.said = behind = wrapped(Of.said)
    for _ in range(3):
        patches.enter(user)
        assert Of().said("x").count("ours") == 1  # the outer one acts alone
    patches.leave(user)
    assert Of.said is behind and Of().said("x") == ["theirs", "theirs", "x"]
    patches.enter(user)
    assert Of().said("x").count("ours") == 1
    Of.said = own  # they put the original back
    patches.enter(user)
    assert Of().said("x") == ["ours", "x"]
    patches.leave(user)
    assert Of.said is own and before is not own


def test_an_error_inside_leaves_it_in_place(patches):
    user = User()
    patches.enter(user)
    with pytest.raises(TypeError):
        Of().said("x", "too many")
    assert Of().said("x") == ["ours", "x"]
    patches.leave(user)


def functions():
    clip = torch.nn.utils.clip_grad._get_total_norm, torch.nn.utils.get_total_norm
    data = vars(DTensor).get("data")
    own = sorted(map(str, torch_patches.dtensor_dispatcher._custom_op_handlers))
    return torch.amp.GradScaler._unscale_grads_, torch.nn.parallel.DistributedDataParallel.__init__, *clip, data, own


def test_torch_is_as_before_when_the_last_model_has_gone():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    before = functions()
    try:
        first, second = (parallelize(torch.nn.Linear(3, 3), layout="tp1", device="cpu", plan="plan x\n") for _ in "ab")
        assert all(one is not other for one, other in zip(before, functions()))
        first.unshard()
        assert all(one is not other for one, other in zip(before, functions()))
        first(torch.ones(1, 3)).sum().backward()
        assert float(clip_grad_norm_(first.parameters(), 1.0)) > 0
        del second
        gc.collect()
        assert functions() == before and PATCHES.handle is None
        third = parallelize(torch.nn.Linear(3, 3), layout="tp1", device="cpu", plan="plan x\n")
        assert functions() != before
    finally:
        dist.destroy_process_group()
    third.weight.grad = torch.ones(3, 3)
    torch.optim.SGD(third.parameters()).step()  # without a group, the next use takes them out
    assert functions() == before and PATCHES.handle is None


class Holder(torch.nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.weight = torch.nn.Parameter(distribute_tensor(torch.ones(4, 3), mesh, [Shard(0)]))


def test_data_of_a_weight_can_be_assigned_or_is_an_error():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    data = AssignedData()
    try:
        mesh = init_device_mesh("cpu", (1,))
        model, other = Holder(mesh), Holder(mesh)
        weight, before, local = model.weight, model.weight.to_local(), lambda: model.weight.to_local()
        weight.data = weight.data * 2
        assert torch.equal(local(), torch.ones(4, 3))  # torch alone takes it without any effect
        data.enter([model])
        weight.data = weight.data * 2
        assert torch.equal(local(), torch.full((4, 3), 2.0)) and torch.equal(weight.full_tensor(), local())
        assert torch.equal(before, torch.ones(4, 3))  # which has the memory that the weight had
        for value in (torch.ones(4, 3), weight.half(), weight[:1], weight.redistribute(placements=[Replicate()])):
            with pytest.raises(ApplyError, match="the value must be a DTensor"):
                weight.data = value
        kept, rows, average = weight.data, weight.detach()[2:], weight.detach() * 3
        weight.data = average  # a swap, and back
        assert torch.equal(rows.to_local(), torch.full((2, 3), 2.0))
        weight.data = kept
        assert torch.equal(local(), torch.full((4, 3), 2.0)) and torch.equal(
            average.to_local(), torch.full((4, 3), 6.0)
        )
        weight.data.mul_(2)
        torch.optim.SGD([weight], 1.0).step()
        assert torch.equal(local().detach(), torch.full((4, 3), 4.0))
        other.weight.data = other.weight.data * 2  # of no model of ours: as torch has it
        assert torch.equal(other.weight.to_local(), torch.ones(4, 3))
        named = distribute_tensor(
            torch.ones(4, 3), init_device_mesh("cpu", (1,), mesh_dim_names=("others",)), [Shard(0)]
        )
        with pytest.raises(ApplyError, match="mul.Tensor of DTensors over different processes"):
            on_whole(torch.ops.aten.mul.Tensor, (weight, named), {})
        due = DTensor.from_local(torch.ones(4, 3), mesh, [Partial()])
        for one, places in ((named, [Shard(0)]), (due, [Replicate()])):
            found = on_whole(torch.ops.aten.mul.Tensor, (one, one), {})
            assert torch.equal(found.full_tensor(), torch.ones(4, 3)) and list(found.placements) == places
        assert on_whole(torch.ops.aten.mul_.Tensor, (named, named), {}) is named
    finally:
        data.leave()
        dist.destroy_process_group()
    assert "data" not in vars(DTensor)


def test_a_whole_gradient_can_be_assigned():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    gradient = AssignedGradient()
    try:
        model = Holder(init_device_mesh("cpu", (1,)))
        weight = model.weight
        gradient.enter([model])
        weight.grad = torch.full((4, 3), 2.0)
        assert type(weight.grad) is DTensor and weight.grad.placements == weight.placements
        weight.grad = given = weight.grad * 2
        assert weight.grad is given and given.full_tensor().tolist() == [[4.0] * 3] * 4
        weight.grad = None
        plain = torch.nn.Parameter(torch.ones(2))  # of no model of ours
        plain.grad = torch.ones(2)
        assert weight.grad is None and type(plain.grad) is torch.Tensor
    finally:
        gradient.leave()
        dist.destroy_process_group()


def test_what_torch_places_nowhere_is_computed_on_whole_weights_while_a_model_is_there():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    weight = distribute_tensor(torch.arange(6.0).view(3, 2), mesh_of("cpu", {"tp": 1}), [Shard(0)])
    model = torch.nn.Linear(2, 2)
    PATCHES.enter(model)
    try:
        found = torch.cdist(weight, weight)
        assert found.full_tensor().tolist()[0] == pytest.approx([0, 8**0.5, 32**0.5])
        weight[1].mul_(0)
        assert weight.full_tensor().tolist() == [[0, 1], [0, 0], [4, 5]]
        weight[1][0] = 7.0
        weight[0] = torch.tensor([8.0, 9.0])
        assert (weight + torch.ones(3, 2)).full_tensor().tolist() == [[9, 10], [8, 1], [5, 6]]
    finally:
        PATCHES.leave(model)
        dist.destroy_process_group()


# What torch does with a DTensor, or its words.
OF_TORCH = {
    "full_tensor": lambda one: one.full_tensor().tolist(),
    "cdist": lambda one: torch.cdist(one, one),
    "write an entry": lambda one: (one.__setitem__(0, 7.0), one.to_local().tolist())[1],
    "write a row": lambda one: one.__setitem__(0, torch.ones(2)),
    "add": lambda one: one + torch.ones(3, 2),
    "copy": lambda one: one.copy_(torch.ones(3, 2)),
    "new": lambda one: type(one.new(3)).__name__,
    "numpy": lambda one: one.numpy(),
    "noise": lambda one: (torch.manual_seed(3), torch.rand_like(one).to_local().tolist())[1],
    "select": lambda one: type(one[1]).__name__,
    "sum": lambda one: str(one.sum().placements),
}


def answers(mesh):
    found = {}
    for name, call in OF_TORCH.items():
        try:
            found[name] = str(call(distribute_tensor(torch.arange(6.0).view(3, 2), mesh, [Shard(0)])))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found


def test_dtensors_of_others_are_as_torch_has_them_while_a_model_is_there():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model, others = torch.nn.Linear(2, 2), init_device_mesh("cpu", (1,), mesh_dim_names=("others",))
    try:
        before = answers(others)
        PATCHES.enter(model)
        assert answers(others) == before
        own = answers(mesh_of("cpu", {"tp": 1}))
        assert {name for name in own if own[name] != before[name]} >= {"cdist", "write a row", "add", "copy", "numpy"}
    finally:
        PATCHES.leave(model)
        dist.destroy_process_group()
