"""Norms of gradients of which a process may have no part."""

import sys
from types import SimpleNamespace

import pytest


torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard, distribute_tensor  # noqa: E402

from modular_converter.parallel.engine.group.gradients import (  # noqa: E402
    _check_replicas,
    check_shards,
    check_wrapped_optimizer,
    norm_of,
    unscale_together,
)
from modular_converter.parallel.engine.group.spread import Spread  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402


def weights():
    """Two weights with gradients; of the first, this process has no rows."""
    found = [torch.nn.Parameter(torch.ones(rows, 4)) for rows in (0, 2)]
    for one in found:
        one.grad = torch.arange(float(one.numel())).view_as(one)
    return [Spread(str(number), one, None) for number, one in enumerate(found)]


@pytest.mark.parametrize("kind", [1.0, 2.0, 3.0, float("inf")])
def test_a_share_without_rows_adds_nothing(kind):
    expected = torch.linalg.vector_norm(torch.arange(8.0), kind)
    torch.testing.assert_close(norm_of(weights(), kind, None, torch.device("cpu")), expected)


@pytest.mark.parametrize("kind", [0.0, -1.0, float("-inf"), float("nan")])
def test_a_norm_that_shares_cannot_give_is_refused(kind):
    with pytest.raises(ApplyError, match="use one above 0"):
        norm_of(weights(), kind, None, torch.device("cpu"))


def test_an_overflow_of_any_process_is_that_of_all(monkeypatch):
    """Seen from a process with one weight: another one has found an overflow, or none."""
    weight, (scaler, group) = torch.nn.Parameter(torch.ones(2)), (object(), object())
    weight.group = SimpleNamespace(group=group)
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight])
    for others in (0.0, 1.0):
        monkeypatch.setattr(
            dist, "all_reduce", lambda facts, how, group, others=others: facts[0].copy_(max(float(facts[0]), others))
        )
        found = unscale_together((), lambda *args: {weight.device: torch.zeros(())}, scaler, optimizer)
        assert float(found[weight.device]) == others
    monkeypatch.setattr(dist, "all_reduce", lambda facts, how, group: facts.fill_(1.0))
    assert float(unscale_together((), lambda *args: {}, scaler, optimizer)[weight.device]) == 1.0
    monkeypatch.setattr(dist, "all_reduce", lambda facts, how, group: facts.copy_(torch.tensor([1.0, 0.0])))
    assert unscale_together((), lambda *args: {}, scaler, optimizer) == {}


def test_a_scaler_gets_the_own_parts_of_gradients_and_weights_without_one():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh, scaler = init_device_mesh("cpu", (1,)), torch.amp.GradScaler("cpu", init_scale=4.0)
        cut, idle = (torch.nn.Parameter(distribute_tensor(torch.ones(2, 3), mesh, [Shard(0)])) for _ in "ab")
        plain, seen = torch.nn.Parameter(torch.ones(3)), []

        def own(scaler, optimizer, *args):
            seen.extend(one.grad for group in optimizer.param_groups for one in group["params"])
            return torch.amp.GradScaler._unscale_grads_(scaler, optimizer, *args)

        scaler.scale(cut.to_local().sum() + 2 * plain.sum()).backward()
        optimizer = torch.optim.SGD([cut, idle, plain])
        found = unscale_together((), own, scaler, optimizer, torch.tensor(0.25), torch.zeros(1), False)
    finally:
        dist.destroy_process_group()
    assert [type(one) for one in seen] == [torch.Tensor, type(None), torch.Tensor] and isinstance(cut.grad, DTensor)
    assert cut.grad.to_local().tolist() == [[1.0] * 3] * 2 and plain.grad.tolist() == [2.0] * 3
    assert [float(one) for one in found.values()] == [0.0]


@pytest.mark.parametrize(
    ("dtensor", "ranks", "says"), [(True, [0], "takes no DTensors"), (False, [0, 1], "other shares")]
)
def test_a_wrapper_for_data_ranks_that_does_not_fit_the_shares_is_refused(monkeypatch, dtensor, ranks, says):
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: group)
    module = torch.nn.Linear(2, 2)
    module.__dict__["_held"] = {"weight": SimpleNamespace(dtensor=dtensor, group=SimpleNamespace(group=ranks))}
    around = torch.nn.Sequential(module)
    with pytest.raises(ApplyError, match=says):
        _check_replicas(around, [0, 1])
    module.__dict__["_held"] = {"weight": SimpleNamespace(dtensor=False, group=SimpleNamespace(group=[0]))}
    _check_replicas(around, [0, 1])


def test_an_optimizer_for_data_ranks_that_does_not_fit_the_shares_is_refused(monkeypatch):
    class ZeroRedundancyOptimizer(torch.optim.SGD):
        """Of torch, whose import takes seconds."""

    name = "torch.distributed.optim.zero_redundancy_optimizer"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(ZeroRedundancyOptimizer=ZeroRedundancyOptimizer))
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: group)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = ZeroRedundancyOptimizer([weight])
    optimizer.process_group = (0, 1)
    assert check_wrapped_optimizer(optimizer) and not check_wrapped_optimizer(torch.optim.SGD([weight]))
    weight.group = SimpleNamespace(group=(0, 1))
    with pytest.raises(
        ApplyError, match=r"other shares of the model: .*\['data'\].*layout='fsdp2.tp2' and no wrapper"
    ):
        check_wrapped_optimizer(optimizer)


def test_shards_are_checked_only_where_processes_share_out_a_model():
    model = torch.nn.Linear(2, 2)
    check_shards(model)
    model.__dict__["_grid"] = SimpleNamespace(group=SimpleNamespace(size=1))
    check_shards(model)
