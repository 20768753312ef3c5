"""Weights that processes take from a folder, and whether all have the same one."""

import weakref

import pytest
import torch
import torch.distributed as dist


pytest.importorskip("transformers")
from safetensors.torch import load_file, save_file  # noqa: E402

from modular_converter.parallel.engine.checkpoint.model_files import open_checkpoint  # noqa: E402
from modular_converter.parallel.engine.group.spread import Spread  # noqa: E402
from modular_converter.parallel.engine.group.weight_sources import FolderSource, _fingerprint  # noqa: E402
from modular_converter.parallel.shard.collectives import ProcessGroup  # noqa: E402
from tests.parallel.adapted import gpt2  # noqa: E402


NAME = "transformer.h.0.mlp.c_fc.weight"


@pytest.fixture
def folder(tmp_path):
    gpt2().save_pretrained(tmp_path)
    return tmp_path


def test_shares_that_a_probe_has_read_are_taken_and_the_rest_is_freed(folder):
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        checkpoint, group = open_checkpoint(folder, None), ProcessGroup(None)
        source = FolderSource(checkpoint, group, group, torch.device("cpu"))
        weight, want = checkpoint.model.get_parameter(NAME), gpt2().get_parameter(NAME)
        source.share(NAME, weight, None, torch.float32)
        target = torch.zeros_like(want)
        source.take(Spread(NAME, weight, None), target)
        assert torch.equal(target, want)
        whole = weakref.ref(source._whole(NAME))
        source.close()
        assert whole() is None
    finally:
        dist.destroy_process_group()


def test_the_same_bytes_of_another_type_are_another_model(folder):
    path = folder / "model.safetensors"
    found, weights = [], {name: one.half() for name, one in load_file(path).items()}
    for kind in (torch.float16, torch.bfloat16, torch.float16):
        save_file({name: one.view(kind) for name, one in weights.items()}, path, {"format": "pt"})
        found.append(_fingerprint(open_checkpoint(folder, torch.float32)))
    assert found[0] == found[2] != found[1]
