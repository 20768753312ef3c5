"""Random states between the caller and a rank; tests of models compare the draws themselves."""

import torch

from modular_converter.parallel.engine.base.call_state import (
    adopt,
    changed_since,
    random_states,
    set_random_states,
)


CPU = torch.device("cpu")


def test_a_call_without_draws_changes_nothing():
    states = random_states()
    adopt(states, CPU)
    assert changed_since(states, CPU) is None


def test_what_a_rank_drew_is_drawn_for_the_caller():
    states = random_states()
    first = torch.rand(3)
    adopt(states, CPU)
    assert torch.equal(torch.rand(3), first)
    drawn = changed_since(states, CPU)
    second = torch.rand(3)
    set_random_states(*drawn)
    assert torch.equal(torch.rand(3), second)
