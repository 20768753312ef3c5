"""The types of the sums by one kernel: those that the kernel of this torch can sum, on all ranks."""

import pytest
import torch
import torch.distributed as dist

from modular_converter.parallel.inference import plain_forwards


class NoHalf(plain_forwards.SmallSums):
    """The kernel of torch 2.11, which has no sum of float16, for one rank without a GPU."""

    def __init__(self, group, device, dtypes):
        self.name = ""
        self.buffers = {dtype: torch.zeros(1024, dtype=dtype) for dtype in dtypes}
        self.views = {}

    def sum(self, view, tensor, how, name):
        if tensor.dtype == torch.float16:
            raise NotImplementedError("\"one_shot_all_reduce\" not implemented for 'Half'")
        return tensor.clone()


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_type_that_the_kernel_lacks_is_summed_otherwise(monkeypatch, group):
    monkeypatch.setattr(plain_forwards, "SmallSums", NoHalf)
    sums = plain_forwards.open_small_sums(group, torch.device("cpu"))
    assert sums.fits(torch.ones(8)) and sums.fits(torch.ones(8, dtype=torch.bfloat16))
    assert not sums.fits(torch.ones(8, dtype=torch.float16))


def test_without_a_kernel_there_are_no_such_sums(group):
    assert plain_forwards.open_small_sums(group, torch.device("cpu")) is None


def test_sums_of_one_rank_are_the_tensor_itself(group):
    direct = plain_forwards.DirectGroup(group)
    one, other = torch.ones(3), torch.ones(3)
    direct.sum_later(one).wait()
    assert direct.sum(other) is other and torch.equal(one, torch.ones(3)) and torch.equal(other, one)
