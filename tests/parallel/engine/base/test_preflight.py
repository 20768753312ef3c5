"""Devices that are asked for, and those that there are."""

import pytest
import torch

from modular_converter.parallel.engine.base.preflight import check_home, devices_for
from modular_converter.parallel.errors import ApplyError


@pytest.mark.parametrize("found", [0, 2])
def test_devices_are_those_of_the_machine(monkeypatch, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    assert devices_for(3, "cpu") == ("cpu",) * 3
    assert devices_for(2, None) == (("cuda:0", "cuda:1") if found else ("cpu", "cpu"))
    with pytest.raises(ApplyError, match=f"this machine has {found}; the largest number that works is {found}"):
        devices_for(found + 1, "cuda")
    with pytest.raises(ApplyError, match="at least one device"):
        devices_for(0, "cpu")
    with pytest.raises(
        ApplyError, match=r"num_gpus=99999: the free memory of this machine is enough for \d+ CPU processes"
    ):
        devices_for(99_999, "cpu")


def test_weights_must_be_here():
    check_home(torch.nn.Linear(2, 2))
    with pytest.raises(ApplyError, match="has no weights"):
        check_home(torch.nn.Linear(2, 2, device="meta"))
