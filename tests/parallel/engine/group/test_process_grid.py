"""Which processes share weights, batches and sequences in a layout, on processes that do not exist."""

import types

import pytest
import torch
import torch.distributed as dist


pytest.importorskip("torch.testing._internal.distributed.fake_pg")
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from modular_converter.parallel.engine.group.process_grid import join_group, process_grid  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.layout import Layout  # noqa: E402


def grid(text, rank, **more):
    """The processes of each dimension in which a process is, and the part of the batch that it has."""
    if dist.is_initialized():
        pytest.skip("another group is there already")
    layout = Layout.parse(text)
    dist.init_process_group("fake", rank=rank, world_size=layout.size, store=FakeStore())
    try:
        found = process_grid(layout, None, False, torch.device("cpu"), **more)
        groups = {"tp": found.group.group, "pp": found.stages, "cp": found.context and found.context.group}
        ranks = {name: dist.get_process_group_ranks(one) for name, one in groups.items() if one is not None}
        data = None if found.data is None else found.data.mesh.tolist()
        return ranks, data, found.data_rank
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("text", "rank", "want"),
    [
        ("tp4", 1, ({"tp": [0, 1, 2, 3]}, None, 0)),
        ("fsdp4", 2, ({"tp": [2]}, [0, 1, 2, 3], 2)),
        ("fsdp2.tp2", 3, ({"tp": [2, 3]}, [1, 3], 1)),
        ("ddp2.fsdp2", 3, ({"tp": [3]}, [[0, 1], [2, 3]], 3)),
        ("tp2.pp2", 2, ({"tp": [2, 3], "pp": [0, 2]}, None, 0)),
        ("cp2", 1, ({"tp": [1], "cp": [0, 1]}, [0, 1], 0)),
        ("fsdp2.cp2", 2, ({"tp": [2], "cp": [2, 3]}, [0, 1, 2, 3], 1)),
        ("cp2.tp2", 3, ({"tp": [2, 3], "cp": [1, 3]}, [1, 3], 0)),
    ],
)
def test_processes_of_a_layout(text, rank, want):
    assert grid(text, rank) == want


def test_one_process_for_each_stage_has_data_of_its_own_where_asked():
    assert grid("pp2", 1)[1:] == (None, 0)
    assert grid("pp2", 1, always_data=True)[1:] == ([1], 0)


def test_a_mesh_of_several_dimensions_is_refused():
    with pytest.raises(
        ApplyError, match=r"the mesh has 2 dimensions; give the dimension to shard over, such as mesh\['tp'\]"
    ):
        process_grid(None, types.SimpleNamespace(ndim=2), False, torch.device("cpu"))


def test_weights_on_the_host_need_a_group_that_takes_them(monkeypatch):
    for name, value in {"is_initialized": True, "get_backend_config": "cuda:nccl"}.items():
        monkeypatch.setattr(dist, name, lambda value=value: value)
    assert join_group("cpu") == torch.device("cpu")
    with pytest.raises(ApplyError, match="offload=: the process group takes no CPU tensors; make it with 'cpu:gloo"):
        join_group("cpu", offload=True)
