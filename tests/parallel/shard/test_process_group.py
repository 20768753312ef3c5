"""A process group of one: results of collectives are new, contiguous, and of the same kind."""

import pytest
import torch
import torch.distributed as dist

from modular_converter.parallel.shard.collectives import ProcessGroup, ScatteringRegion


@pytest.fixture(scope="module")
def group():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield ProcessGroup()
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", [torch.float32, torch.bool, torch.int64])
def test_the_first_ranks_tensor_is_a_new_one(group, kind):
    given = torch.tensor([[1, 0], [1, 1]]).to(kind)
    for tensor in (given, given.T):
        found = group.from_first(tensor)
        assert torch.equal(found, tensor) and found.dtype is kind and found.data_ptr() != tensor.data_ptr()


def test_sums_and_parts_leave_what_was_given_alone(group):
    given = torch.arange(6.0).view(2, 3).T.requires_grad_()
    assert (group.rank, group.size) == (0, 1)
    for found in (group.all_reduce(given), *group.all_gather(given)):
        assert torch.equal(found, given) and found.is_contiguous() and not found.requires_grad
        assert found.data_ptr() != given.data_ptr()


def test_booleans_travel_as_bytes(group, monkeypatch):
    """Two processes of gloo cannot send others."""
    sent = []
    monkeypatch.setattr(dist, "broadcast", lambda tensor, **given: sent.append(tensor.dtype))
    for kind in (torch.bool, torch.float32, torch.int64):
        assert group.from_first(torch.ones(2).to(kind)).dtype is kind
    assert sent == [torch.uint8, torch.float32, torch.int64]


def test_a_sum_of_parts_is_this_ranks_part(group):
    given = torch.arange(6.0).view(2, 3)
    found = group.sum_of_parts([given])
    assert torch.equal(found, given) and found.data_ptr() != given.data_ptr()
    x = given[None].clone().requires_grad_()
    ScatteringRegion(group).sum(x * 2).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2.0))
