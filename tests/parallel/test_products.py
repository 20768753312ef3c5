"""Products of data and tensor ranks: training in a layout is that of one process."""

from __future__ import annotations

import pytest


pytest.importorskip("transformers")

from tests.parallel.test_training import ROOT, run_under_torchrun  # noqa: E402


# Packed, tied and dropped weights.
def test_sharded_data_and_tensors_train_as_one_process():
    found = run_under_torchrun(4, ROOT / "utils/prove_training.py", "--worker", "--types=gpt2", "--layouts=fsdp2.tp2")
    assert found["worst"] < 1e-6
