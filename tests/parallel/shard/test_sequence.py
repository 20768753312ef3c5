"""Parts of sequences and unequal shares on ranks that are threads: values and gradients are those of one device."""

from collections import namedtuple

import pytest
import torch

from modular_converter.parallel.shard.collectives import (
    GroupRegion,
    ScatteringRegion,
    all_shares,
    borders_of,
    part_of_sequence,
    run_on_threads,
    whole_sequence,
)


def on_ranks(ranks, work):
    """What each rank gives."""
    found = {}

    def keep(group):
        found[group.rank] = work(group)
        return False

    run_on_threads(ranks, keep)
    return [found[rank] for rank in range(ranks)]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("ranks", [2, 3])
def test_between_sharded_regions_each_rank_has_its_part_of_the_sequence(ranks):
    x, factors, heads, coefficients = (drawn(2, 6, 4, seed=one) for one in range(4))
    shares = [drawn(4, seed=10 + rank) for rank in range(ranks)]  # of the ranks in the sharded region

    def inside(normed, share):
        return torch.tanh(normed * share) * heads

    whole = x.clone().requires_grad_()
    normed = whole * factors
    wanted = sum(inside(normed, share) for share in shares)
    (wanted * coefficients).sum().backward()

    def work(group):
        own = x.clone().requires_grad_()
        part = part_of_sequence(own, group)
        normed = part * part_of_sequence(factors, group)
        entered = GroupRegion(group).enter(whole_sequence(normed, group))
        result = ScatteringRegion(group).sum(inside(entered, shares[group.rank]))
        (result * part_of_sequence(coefficients, group)).sum().backward()
        return part, result, own.grad

    for rank, (part, result, gradient) in enumerate(on_ranks(ranks, work)):
        assert torch.equal(part, x.chunk(ranks, 1)[rank])
        torch.testing.assert_close(result, wanted.chunk(ranks, 1)[rank])
        torch.testing.assert_close(gradient, whole.grad)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_whole_sequence_that_enters_nothing_takes_its_own_gradient(ranks):
    """All ranks compute the same with it, so that nothing is summed."""
    x, coefficients = drawn(2, 6, 4), drawn(2, 6, 4, seed=1)

    def work(group):
        part = part_of_sequence(x, group).detach().requires_grad_()
        joined = whole_sequence(part, group)
        (joined * coefficients).sum().backward()
        return joined, part.grad

    for rank, (joined, gradient) in enumerate(on_ranks(ranks, work)):
        assert torch.equal(joined, x) and torch.equal(gradient, coefficients.chunk(ranks, 1)[rank])


@pytest.mark.parametrize("lengths", [(2, 2), (3, 2), (2, 0), (3, 2, 2), (0, 3, 1)])
@pytest.mark.parametrize("dim", [0, 1])
def test_unequal_shares_are_gathered_with_their_gradients(lengths, dim):
    shape = [2, 5]
    shape[dim] = sum(lengths)
    whole, coefficients = drawn(*shape), drawn(*shape, seed=1)

    def work(group):
        own = whole.split(lengths, dim)[group.rank].clone().requires_grad_()
        found = GroupRegion(group).gather(own * 2, dim, borders_of(lengths))
        (found * coefficients).sum().backward()
        return found, own.grad, all_shares(own.detach(), group, dim, lengths)

    for rank, (found, gradient, shares) in enumerate(on_ranks(len(lengths), work)):
        assert torch.equal(found, whole * 2)
        torch.testing.assert_close(gradient, 2 * coefficients.split(lengths, dim)[rank])
        assert [share.tolist() for share in shares] == [share.tolist() for share in whole.split(lengths, dim)]


Pair = namedtuple("Pair", "first second")


def test_what_enters_may_hold_tensors_and_other_values():
    """Only the gradients of floating tensors are summed; each container comes back as what it was."""
    given = drawn(3), torch.arange(3), drawn(3, seed=1)

    def work(group):
        first, ids, second = given[0].clone().requires_grad_(), given[1], given[2].clone().requires_grad_()
        region = GroupRegion(group)
        value = region.enter((first, [ids, second], 7, None, "text"))
        total = (value[0] * 2 + value[1][1] * 3).sum() * (group.rank + 1)
        total.backward()
        named, plain = Pair(first, ids), {"a": 1}
        return value, ids, first.grad, second.grad, region.enter(named) is named, region.enter(plain) is plain

    for value, ids, first, second, *same in on_ranks(2, work):
        assert type(value) is tuple and type(value[1]) is list and value[2:] == (7, None, "text")
        assert value[1][0] is ids and torch.equal(value[0], given[0]) and torch.equal(value[1][1], given[2])
        assert torch.equal(first, torch.full((3,), 6.0)) and torch.equal(second, torch.full((3,), 9.0))
        assert same == [True, True]
