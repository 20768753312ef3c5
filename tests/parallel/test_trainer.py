"""transformers' ``Trainer`` with a parallelized model: it trains as one process, or refuses before the first step."""

from __future__ import annotations

import pytest


pytest.importorskip("transformers")

from tests.parallel.launch import line_of  # noqa: E402


def test_the_trainer_trains_as_one_process():
    found = line_of(4, "tests/parallel/trainer_script.py", "ddp2.tp2")
    assert "DistributedDataParallel takes no DTensors" in found.pop("plain shares")
    assert "distributed_config" in found.pop("accumulated")
    assert list(found) == ["ddp2.tp2"]
    assert all(one["norms"] < 1e-5 and one["weights"] < 1e-4 for one in found.values())
