"""Ranks that are threads: an error or another call of one of them is an error for all, at once."""

import pytest
import torch

from modular_converter.parallel.errors import RankError
from modular_converter.parallel.shard.collectives import enter, run_on_threads


ONES = torch.ones(2)


def test_what_a_rank_raises_is_raised_and_no_other_waits_for_it():
    said = []

    def work(group):
        if group.rank:
            raise KeyError("of the second rank")
        try:
            group.all_reduce(ONES)
        except RankError as error:
            said.append(str(error))
        return bool(said)

    with pytest.raises(KeyError, match="of the second rank"):
        run_on_threads(2, work)
    assert said == ["another rank failed, or the ranks make different numbers of collectives"]


def test_what_a_rank_raises_after_its_last_meeting_is_raised_too():
    def work(group):
        group.all_reduce(ONES)
        assert not group.rank
        return False

    with pytest.raises(AssertionError):
        run_on_threads(2, work)


@pytest.mark.parametrize(
    "call",
    [
        lambda group: group.all_reduce(ONES) if group.rank else group.all_gather(ONES),
        lambda group: group.all_reduce(torch.ones(2 + group.rank)),
    ],
)
def test_ranks_that_make_different_calls_disagree(call):
    said = []

    def work(group):
        try:
            call(group)
        except RankError as error:
            said.append(str(error))
        return False

    run_on_threads(2, work)
    assert len(said) == 2 and all("the ranks make different calls: " in text and " against " in text for text in said)


def test_each_rank_gets_the_sum_and_all_parts_and_draws_what_the_others_draw():
    found = {}

    def work(group):
        own = torch.full((2,), float(group.rank + 1))
        torch.manual_seed(3)
        drawn = torch.rand(2)
        total, parts = group.all_reduce(own), group.all_gather(own)
        found[group.rank] = total.tolist(), [part.tolist() for part in parts], drawn.tolist(), torch.rand(2).tolist()
        return False

    run_on_threads(3, work)
    assert found[0][:2] == ([6.0, 6.0], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    assert found[0] == found[1] == found[2]


def test_a_tensor_that_has_changed_enters_anew():
    """Frozen weights keep no inputs, so that code may change a tensor in place between two uses."""
    found = {}

    def work(group):
        given = torch.ones(2, requires_grad=True)
        tensor = given * 1
        first = enter(tensor, group)
        shared = enter(tensor, group) is first
        result = first * (group.rank + 1.0)
        tensor.mul_(3)
        second = enter(tensor, group)
        (result.sum() + second.sum() * 10).backward()
        found[group.rank] = shared, second is first, given.grad.tolist()
        return False

    run_on_threads(2, work)
    assert (
        found[0] == found[1] == (True, False, [63.0, 63.0])
    )  # 1 + 2 for the first use, 3 * 10 on each rank for the second


def test_ranks_that_are_threads_sum_their_parts():
    found = {}

    def work(group):
        parts = [torch.tensor([[1.0, 2.0, 3.0]]) * 10**part + group.rank for part in range(3)]
        found[group.rank] = group.sum_of_parts(parts).tolist()
        return False

    run_on_threads(3, work)
    assert found == {rank: [[3 * n * 10**rank + 3 for n in (1, 2, 3)]] for rank in range(3)}
