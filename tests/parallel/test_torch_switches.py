"""Work on small tensors runs with one thread in each operation, and the number before comes back."""

import threading

import pytest
import torch

from modular_converter.parallel.torch_switches import one_thread


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_the_number_of_threads_comes_back_after_the_outermost_block_and_an_error(three_threads):
    with pytest.raises(ZeroDivisionError), one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 3


def test_a_thread_that_begins_within_a_block_leaves_the_number_of_before(three_threads):
    inside, leave, found = threading.Event(), threading.Event(), []

    def other():
        with one_thread():
            inside.set()
            leave.wait(60)
        found.append(torch.get_num_threads())

    worker = threading.Thread(target=other)
    with one_thread():
        worker.start()
        assert inside.wait(60)
    assert torch.get_num_threads() == 3
    leave.set()
    worker.join()
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert found == [3, 3] and torch.get_num_threads() == 3
