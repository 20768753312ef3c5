"""Two hosts of one process each, as far as the processes can tell: both are this one, each with a copy of a saved model."""

from __future__ import annotations

import shutil

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from tests.parallel.launch import line_of  # noqa: E402


def test_two_hosts_read_their_shares_of_their_copies(tmp_path):
    torch.manual_seed(3)
    small = build(target_of("mixtral", "causal"), {"vocab_size": 157}).model  # which two do not divide
    small.save_pretrained(tmp_path / "one", max_shard_size="50KB")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.add_(1)
    small.save_pretrained(tmp_path / "other")
    folders = [tmp_path / name for name in ("one", "copy", "other")]
    found = line_of(2, "tests/parallel/hosts_script.py", *folders, hosts=2)
    assert found["saved"]
    assert len(list((tmp_path / "one-saved").glob("model-*"))) >= 2
    assert found["outputs"] < 1e-5 and found["norm"] < 1e-4 and found["tokens"] and found["weights"]
    assert found["share"] < 0.6 and found["read"] < found["share"] + 0.01
    assert "holds another model on process 1" in found["errors"][0]
    assert found["errors"][1].startswith("process 1: ") and "is not a folder" in found["errors"][1]
    assert found["plain"] and found["plain outputs"] < 1e-5 and found["plain tokens"] and found["plain weights"]
    assert not found["gradients"] and len(found["errors"]) == 5
    assert all("has its form for inference" in said for said in found["errors"][2:4])
    assert "adapters would be made only for this process's share" in found["errors"][4]
