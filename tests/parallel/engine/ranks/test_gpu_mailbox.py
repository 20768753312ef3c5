"""A rank's memory as the main process sees it. Here both sides are one process, and the memory is the CPU's."""

import pytest
import torch

from modular_converter.parallel.engine.ranks import gpu_mailbox
from modular_converter.parallel.engine.ranks.gpu_mailbox import Mailbox, Post


CPU = torch.device("cpu")


@pytest.fixture
def lending(monkeypatch):
    monkeypatch.setattr(gpu_mailbox, "lent", lambda value: ("shared", lambda same: same, (value,)))


def test_what_is_described_early_is_read_when_it_is_complete(lending):
    box, post = Mailbox(1 << 12), Post()
    value = torch.arange(6.0).view(2, 3)
    first = post.look_up(CPU, *box.put(value, 0)[1:])
    second = post.look_up(CPU, *box.put(value.to(torch.int8), 64)[1:])
    assert first.data_ptr() != box.buffer.data_ptr()
    box.buffer[:24].view(torch.float32).add_(1)  # the rank writes on until it says that it is done
    post.fetch()
    assert torch.equal(first, value + 1) and torch.equal(second, value.to(torch.int8))
    box.put(value * 0, 0)
    post.fetch()
    assert torch.equal(first, value + 1)


def test_the_memory_is_lent_once(lending):
    box = Mailbox(1 << 12)
    assert box.put(torch.ones(3), 0)[-1] is not None
    assert box.put(torch.ones(3), 64)[-1] is None


@pytest.mark.parametrize("length", [0, 1 << 12])
def test_what_does_not_fit_is_not_put(lending, length):
    assert Mailbox(1 << 10).put(torch.ones(length), 0) is None


def test_a_system_that_does_not_lend(monkeypatch):
    monkeypatch.setattr(gpu_mailbox, "lent", lambda value: None)
    box = Mailbox(1 << 12)
    assert box.put(torch.ones(3), 0) is None and not box.usable


def test_memory_that_is_lent_for_another_device_is_read_when_it_is_complete():
    post, place = Post(), torch.zeros(3)
    found = post.announce(place, CPU)
    place.add_(2)
    post.fetch()
    assert torch.equal(found, place)


def test_a_post_that_is_closed_holds_nothing(lending):
    post = Post()
    post.look_up(CPU, *Mailbox(1 << 12).put(torch.ones(3), 0)[1:])
    post.close()
    assert post.buffer is None and not post.announced
