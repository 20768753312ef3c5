"""A rank's memory as the main process sees it. Here both sides are one process, and the memory is the CPU's."""

import pytest
import torch

from modular_converter.parallel.ranks import packing
from modular_converter.parallel.ranks.packing import ResultBuffer, ResultReader


CPU = torch.device("cpu")


@pytest.fixture
def lending(monkeypatch):
    monkeypatch.setattr(packing, "lent", lambda value: ("shared", lambda same: same, (value,)))


def test_what_is_described_early_is_read_when_it_is_complete(lending):
    box, reader = ResultBuffer(1 << 12), ResultReader()
    value = torch.arange(6.0).view(2, 3)
    first = reader.look_up(CPU, *box.write(value, 0)[1:])
    second = reader.look_up(CPU, *box.write(value.to(torch.int8), 64)[1:])
    assert first.data_ptr() != box.buffer.data_ptr()
    box.buffer[:24].view(torch.float32).add_(1)  # the rank writes on until it says that it is done
    reader.read()
    assert torch.equal(first, value + 1) and torch.equal(second, value.to(torch.int8))
    box.write(value * 0, 0)
    reader.read()
    assert torch.equal(first, value + 1)


def test_the_memory_is_lent_once(lending):
    box = ResultBuffer(1 << 12)
    assert box.write(torch.ones(3), 0)[-1] is not None
    assert box.write(torch.ones(3), 64)[-1] is None


@pytest.mark.parametrize("length", [0, 1 << 12])
def test_what_does_not_fit_is_not_put(lending, length):
    assert ResultBuffer(1 << 10).write(torch.ones(length), 0) is None


def test_a_system_that_does_not_lend(monkeypatch):
    monkeypatch.setattr(packing, "lent", lambda value: None)
    box = ResultBuffer(1 << 12)
    assert box.write(torch.ones(3), 0) is None and not box.usable


def test_memory_that_is_lent_for_another_device_is_read_when_it_is_complete():
    reader, place = ResultReader(), torch.zeros(3)
    found = reader.expect(place, CPU)
    place.add_(2)
    reader.read()
    assert torch.equal(found, place)


def test_a_post_that_is_closed_holds_nothing(lending):
    reader = ResultReader()
    reader.look_up(CPU, *ResultBuffer(1 << 12).write(torch.ones(3), 0)[1:])
    reader.close()
    assert reader.buffer is None and not reader.expected
