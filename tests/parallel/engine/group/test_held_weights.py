"""Which modules get a forward of ours for their share, and which keep their own."""

from types import SimpleNamespace

import pytest
from torch import nn

from modular_converter.parallel.engine.group import held_weights
from modular_converter.parallel.engine.group.held_weights import chunk_lengths, product_forward


def held(**more):
    return {"weight": SimpleNamespace(**({"of_product": object(), "copies": False, "summed": False} | more))}


def test_a_plain_product_gets_our_forward():
    assert product_forward(nn.Linear, held()) is held_weights.linear_forward
    assert product_forward(nn.Embedding, held()) is None and product_forward(nn.Linear, {}) is None


@pytest.mark.parametrize("more", [{"copies": True}, {"summed": True}, {"of_product": None}])
def test_weights_with_copies_or_summed_gradients_are_read_by_the_models_own(more):
    assert product_forward(nn.Linear, held(**more)) is None


def test_torch_cuts_into_equal_lengths_and_shorter_last_ones():
    assert (
        chunk_lengths(5, 2) == (3, 2) and chunk_lengths(2, 4) == (1, 1, 0, 0) and chunk_lengths(9, 4) == (3, 3, 3, 0)
    )
