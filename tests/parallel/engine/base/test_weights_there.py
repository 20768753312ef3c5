"""A weight whose numbers are elsewhere: its facts are there, its numbers are fetched, and its memory cannot be written."""

import pytest
import torch

from modular_converter.parallel.engine.base.weights_there import refuse_backward, weight_there
from modular_converter.parallel.errors import PlanError


@pytest.fixture
def weight():
    empty = torch.empty(2, 3, device="meta")
    return weight_there(empty, "up.weight", True, torch.device("cpu"), lambda: torch.arange(6.0).view(2, 3), "{name}!")


def test_its_memory_is_read_and_not_written(weight):
    storage = weight.untyped_storage()
    assert storage.nbytes() == len(storage) == 24 and list(storage[:4]) == [0] * 4
    with pytest.raises(PlanError, match="has no address here"):
        storage.data_ptr()
    for write in (lambda: storage.fill_(1), lambda: storage.__setitem__(0, 1)):
        with pytest.raises(PlanError, match="writing to it here would change nothing"):
            write()


def test_its_numbers_are_fetched_and_its_facts_are_not(weight):
    assert weight.shape == (2, 3) and weight.device == torch.device("cpu") and weight.requires_grad
    assert float(weight.detach().sum()) == 15 and weight[1].tolist() == [3, 4, 5]
    with pytest.raises(PlanError, match=r"^up\.weight!$"):
        weight.data.zero_()
    array = weight.detach().numpy()
    assert (array + 1).sum() == 21
    with pytest.raises(PlanError, match="writing to it here"):
        array[0] = 1


def test_what_is_known_of_a_weight_is_read_without_its_numbers():
    weight = weight_there(torch.empty(2, 3, device="meta"), "up.weight", True, torch.device("cpu"), None, "{name}!")
    assert (weight.dtype, weight.ndim, weight.shape, weight.is_leaf) == (torch.float32, 2, (2, 3), True)
    assert weight.grad is None and not weight.is_sparse and weight.layout is torch.strided


@pytest.mark.parametrize("kind", [torch.float32, torch.complex64])
def test_a_backward_that_would_need_the_ranks_is_refused(kind):
    weight = torch.ones(2, requires_grad=True, dtype=kind)
    loss = (weight * 2).abs().sum() + refuse_backward(torch.ones(2, dtype=kind)).abs().sum()
    with pytest.raises(PlanError, match="runs without gradients"):
        loss.backward()
    ids = torch.ones(2, dtype=torch.long)
    assert refuse_backward(ids) is ids
    with torch.no_grad():
        assert not refuse_backward(torch.ones(2)).requires_grad
