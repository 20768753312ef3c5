"""What code writes to a view of a weight that torch has copied goes to the weight, and a view shows what was written since."""

import copy
import io

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from modular_converter.parallel.engine.group import views_of_weights
from modular_converter.parallel.engine.group.torch_patches import on_whole
from modular_converter.parallel.engine.group.views_of_weights import CopiedView, is_view, written_by
from modular_converter.parallel.errors import ApplyError


aten = torch.ops.aten


@pytest.fixture
def weight():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield distribute_tensor(torch.arange(12.0).view(4, 3), init_device_mesh("cpu", (1,)), [Shard(0)])
    dist.destroy_process_group()


def row(weight, number):
    """A row as torch takes it where it must gather: a copy."""
    return on_whole(aten.select.int, (weight, 0, number), {})


def test_views_and_writes_are_known_by_the_schema():
    assert all(
        map(is_view, (aten.select.int, aten.t.default, aten.unbind.int, aten.view.default, aten.diagonal.default))
    )
    assert not any(map(is_view, (aten.clone.default, aten.zero_.default, aten.add.out, aten.index.Tensor)))
    assert written_by(aten.add.out, (1, 2), {"out": 3}) == [3] and written_by(aten.mul.Tensor, (1, 2), {}) == []
    assert written_by(aten._foreach_mul_.Scalar, ([1, 2], 2), {}) == [1, 2]


def test_writes_reach_the_weight(weight):
    first, second = row(weight, 1), row(weight, 2)
    assert type(first) is type(second) is CopiedView
    first.zero_()
    torch.add(first, 5, out=second)
    second[1:].mul_(2)
    second.detach()[:1].sub_(1)
    assert weight.full_tensor().tolist() == [[0, 1, 2], [0, 0, 0], [4, 10, 10], [9, 10, 11]]
    assert second.full_tensor().tolist() == [4, 10, 10]


def test_a_view_shows_what_was_written_since(weight):
    before = weight._version
    view, own = row(weight, 1), row(weight, 1).clone()
    on_whole(aten.mul_.Tensor, (weight, 2.0), {})
    torch.autograd.graph.increment_version(weight)
    assert weight._version > before and view.full_tensor().tolist() == [6, 8, 10]
    assert type(own) is DTensor and own.zero_() is own and float(weight.sum()) == 132


def test_a_read_to_which_another_process_does_not_come_is_refused_until_it_does(weight, monkeypatch):
    view = row(weight, 1)
    on_whole(aten.mul_.Tensor, (weight, 2.0), {})
    torch.autograd.graph.increment_version(weight)

    def alone(method, ranks):
        raise ApplyError(f"process 0 has called {method}")

    monkeypatch.setattr(views_of_weights, "meet_of", alone)
    for _ in range(2):
        with pytest.raises(
            ApplyError, match="process 0 has called code that reads a view of a weight that was written"
        ):
            view + 1
    monkeypatch.undo()
    assert (view + 1).full_tensor().tolist() == [7, 9, 11]


def test_copies_and_files_are_plain(weight):
    view = row(weight, 1)
    file = io.BytesIO()
    torch.save(view, file)
    assert b"CopiedView" not in file.getvalue()
    copy.deepcopy(view).zero_()
    assert weight.full_tensor()[1].tolist() == [3, 4, 5]
