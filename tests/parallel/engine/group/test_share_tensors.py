"""Shares without a placement of torch: operations on each entry run, any other is an error that names the weight."""

from __future__ import annotations

import copy
import io
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from modular_converter.parallel.engine.group import share_tensors
from modular_converter.parallel.engine.group.share_tensors import ShareTensor, as_plain, mark, unmarked
from modular_converter.parallel.errors import ApplyError


def shares() -> list[nn.Parameter]:
    """A matrix and a bias of which this process has 2 of 5 rows."""
    torch.manual_seed(0)
    found = [nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(2))]
    for one in found:
        one.grad = torch.randn(one.shape)
    return found


def marked() -> list[nn.Parameter]:
    found = shares()
    for name, one in zip(("up.weight", "up.bias"), found):
        mark(one, (name, (5, *one.shape[1:]), (0, 1)))
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda weights: torch.optim.AdamW(weights, amsgrad=True),
        lambda weights: torch.optim.AdamW(weights, foreach=True),
        lambda weights: torch.optim.AdamW(weights, fused=True),
        lambda weights: torch.optim.NAdam(weights, decoupled_weight_decay=True),
        lambda weights: torch.optim.RMSprop(weights, centered=True, momentum=0.9),
        lambda weights: torch.optim.Adagrad(weights),
        lambda weights: torch.optim.Adadelta(weights),
        lambda weights: torch.optim.Adamax(weights),
        lambda weights: torch.optim.Rprop(weights),
        lambda weights: torch.optim.RAdam(weights),
        lambda weights: torch.optim.ASGD(weights),
    ],
)
def test_optimizers_that_treat_each_entry_alone_run(make):
    pair = shares(), marked()
    for weights in pair:
        optimizer = make(weights)
        for _ in range(3):
            torch.nn.utils.clip_grad_value_(weights, 0.5)
            optimizer.step()
    assert all(torch.equal(one, as_plain(two)) for one, two in zip(*pair))
    assert all(isinstance(one, ShareTensor) and isinstance(one.grad, ShareTensor) for one in pair[1])


@pytest.mark.parametrize(
    "statistic",
    [
        lambda one: one.norm(),
        lambda one: one.grad.norm(),
        lambda one: one.detach().abs().max(),
        lambda one: one.data.double().pow(2).sum(),
        lambda one: (one.grad / 2).std(),
        lambda one: torch.isfinite(one.grad).all(),
        lambda one: one.grad.T @ one.grad,
        lambda one: one[0],
        lambda one: one.view(-1),
        lambda one: torch.randn_like(one),
        lambda one: torch.equal(one, one.detach()),
        lambda one: float(one.grad.mean()),
        lambda one: torch.stack([one, one]),
        lambda one: torch.maximum(one, one.grad).tolist(),
        lambda one: torch.linalg.vector_norm(one.grad, dtype=torch.float64),
        lambda one: torch._foreach_norm([one.grad]),
        lambda one: torch.nn.utils.clip_grad_norm_([one], 1.0),
        lambda one: torch.optim.Adafactor([one]).step(),
        lambda one: torch.optim.Muon([one]).step(),
    ],
)
def test_statistics_are_errors(statistic):
    with pytest.raises(ApplyError, match="of up.weight, of its gradient or of their state: a process has its share"):
        statistic(marked()[0])


def test_a_trace_of_them_is_refused_with_the_cure(monkeypatch):
    weight, _ = marked()
    monkeypatch.setattr(share_tensors, "TracingContext", SimpleNamespace(try_get=lambda: "a trace"))
    with pytest.raises(ApplyError, match=r"up\.weight is .* torch\.compile\(model\) cannot trace"):
        weight.add(1)


def test_shapes_are_those_of_the_whole_weight():
    weight, bias = marked()
    assert weight.shape == weight.grad.shape == torch.zeros_like(weight).shape == torch.Size((5, 3))
    assert weight.size(0) == len(bias) == 5 and sum(one.numel() for one in (weight, bias)) == 20
    assert as_plain(weight).shape == (2, 3) and not isinstance(as_plain(weight), ShareTensor)


def test_copies_know_it_too_and_files_do_not():
    weight = marked()[0]
    for one in (
        copy.deepcopy(weight),
        weight.clone(),
        weight.detach(),
        weight.data,
        weight.to(torch.float64),
        -weight,
    ):
        assert isinstance(one, ShareTensor)
    file = io.BytesIO()
    torch.save({"state": weight * 2}, file)
    file.seek(0)
    assert type(torch.load(file)["state"]) is torch.Tensor
    with unmarked([weight, weight, weight.grad]):
        assert type(weight) is nn.Parameter and weight.norm() > 0
    assert isinstance(weight, ShareTensor) and "Parameter" in repr(weight)


def test_a_module_converts_and_clears_them():
    module, alone = nn.Linear(3, 2), nn.Linear(3, 2)
    for one in (module, alone):
        one.weight, one.bias = shares()
    for name, one in module.named_parameters():
        mark(one, (name, (5, *one.shape[1:]), (0, 1)))
    for one in (module, alone):
        one.double().to(torch.bfloat16).zero_grad(set_to_none=False)
    assert all(isinstance(one, ShareTensor) and isinstance(one.grad, ShareTensor) for one in module.parameters())
    pairs = zip(module.parameters(), alone.parameters(), strict=True)
    assert all(torch.equal(as_plain(one), two) and not as_plain(one.grad).any() for one, two in pairs)


def test_processes_that_hold_the_same_share_may_exchange_it(monkeypatch):
    ranks = {None: [0, 1, 2, 3], "data": [0, 2]}
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", ranks.__getitem__)
    weight = marked()[0]
    assert share_tensors.holds_other_shares((0, 1), None) and not share_tensors.holds_other_shares((0, 1), "data")
    for call in (torch.distributed.broadcast, torch.distributed.all_reduce):
        with pytest.raises(ApplyError, match=f"^{call.__name__} of up.weight, of its gradient"):
            call(weight, 0)


def test_lists_of_shares_and_dtensors_are_computed_each_for_itself():
    """As an optimizer with ``foreach`` gives them; torch takes no mixture."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        spread = distribute_tensor(torch.ones(2, 3), init_device_mesh("cpu", (1,)), [Shard(0)])
        weight = marked()[0].detach()
        own = as_plain(weight).clone()
        doubled, other = torch._foreach_mul([weight, spread], 2.0)
        assert torch.equal(as_plain(doubled), 2 * own) and isinstance(doubled, ShareTensor)
        assert torch.equal(other.full_tensor(), torch.full((2, 3), 2.0)) and isinstance(other, DTensor)
        assert torch._foreach_mul_([weight, spread], 2.0) is None or torch.equal(as_plain(weight), 2 * own)
        assert torch.equal(as_plain(weight), 2 * own) and torch.equal(spread.full_tensor(), torch.full((2, 3), 2.0))
    finally:
        dist.destroy_process_group()
