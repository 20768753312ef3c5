"""Gradients of gradients in each layout, in double precision: those of one process, or an error."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


SCRIPT = "tests/parallel/second_script.py"
# The routers and norms of these models compute in single precision.
SINGLE = 1e-5


def test_a_product_with_the_hessian_and_a_penalty_are_those_of_one_process():
    found = line_of(2, SCRIPT, "quick")["errors"]
    assert len(found) == 3 and all(error < 1e-9 for error in found.values()), found


@pytest.mark.slow
def test_penalties_of_gradients_and_products_with_hessians_are_those_of_one_process():
    found = line_of(2, SCRIPT, "2")
    assert len(found["errors"]) == 13
    for name, error in found["errors"].items():
        assert error < (SINGLE if "mixtral" in name else 1e-9), (name, error)
    functional = found["functional"]
    for name in ("vectorized", "vectorized forward"):
        assert functional.pop(name).startswith("ApplyError: several gradients at once (vectorize=True")
    assert functional.pop("weights").startswith("ApplyError: modules or weights of model.embed_tokens.weight were set")
    assert len(functional) == 8 and all(error < SINGLE for error in functional.values()), functional
    assert "averaged without a graph; take torch.autograd.grad" in found["graph"]
    critics = found["critics"]
    assert critics["apart"] < 1e-12 and critics["together"] < 1e-12
    for name in ("other", "step"):
        assert critics[name].startswith(
            "ApplyError: the weights of this gradient's graph were freed by another backward"
        )
    assert critics["func"].startswith("ApplyError: torch.func does not go with data ranks")


@pytest.mark.slow
def test_penalties_of_gradients_in_mixed_layouts_are_those_of_one_process():
    found = line_of(4, SCRIPT, "4")["errors"]
    assert len(found) == 3 and all(error < (SINGLE if "mixtral" in name else 1e-9) for name, error in found.items())
