"""Random uses of a model on ranks are those of one device, or refused; `utils/mutate_uses.py` tries many more."""

import random

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.parallel.random_uses import (  # noqa: E402
    DIFFERENT,
    EQUAL,
    ERROR,
    REFUSED,
    Pair,
    difference,
    random_lines,
    reduced,
    run,
    subject_named,
)


@pytest.fixture(scope="module")
def pair(ranks):
    found = Pair(subject_named("handy"), ranks)
    yield found
    found.end()


@pytest.mark.parametrize("seed", range(3))
def test_random_lines(pair, seed):
    choice = random.Random(seed)
    lines = random_lines(pair.subject, choice, choice.randint(2, 6))
    outcome = run(pair, lines)
    assert outcome.kind != DIFFERENT, (outcome, lines)


def test_what_comes_of_lines_is_told(pair):
    call = "out = m(**x)"
    assert run(pair, ["at('layers.0.attn').scale = 2.0", call]).kind == EQUAL
    assert run(pair, ["at('head').weight.mul_(2)", call]).kind == REFUSED
    assert run(pair, ["out = at('layers.0.attn.o')(*given['layers.0.attn.o'][0])", call]).kind == REFUSED
    assert run(pair, ["out = {}['lost'] if hasattr(m, '_placement') else m(**x)", call]).kind == ERROR
    differs = "out = type(m).forward.__module__ if hasattr(m, '_placement') else m(**x)"
    assert run(pair, ["m.note = 1", differs, call]).kind == DIFFERENT
    found = reduced(["m.note = 1", differs, call], lambda fewer: run(pair, fewer).kind == DIFFERENT)
    assert found == [differs] and run(pair, [call]).kind == EQUAL


def test_training_steps_compute_in_double_precision_what_code_asks_for_in_another():
    from tests.parallel.random_steps import AllDouble

    x = torch.ones(3, dtype=torch.float64)
    with AllDouble():
        found = [
            x.float(),
            x.bfloat16(),
            x.to(torch.float32),
            x.softmax(0, dtype=torch.float32),
            torch.zeros(2, dtype=torch.half),
        ]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scale = scaler.scale(x)
        optimizer = torch.optim.SGD([torch.nn.Parameter(x.clone())])
        optimizer.param_groups[0]["params"][0].grad = scale
        scaler.step(optimizer)
        scaler.update()
    assert {one.dtype for one in found} == {torch.float64} and torch.equal(scale, x)  # unscaled in place
    assert x.float().dtype == torch.float32


@pytest.mark.parametrize("backward", [torch.Tensor.backward, torch.autograd.backward])
def test_a_forward_that_a_backward_computes_again_is_in_double_precision_too(backward):
    from torch.utils.checkpoint import checkpoint

    from tests.parallel.random_steps import AllDouble

    weight, seen = torch.ones(3, dtype=torch.float64, requires_grad=True), []

    def single(x):
        seen.append(x.softmax(0, dtype=torch.float32).dtype)
        return x.softmax(0, dtype=torch.float32) * x

    with AllDouble():
        backward(checkpoint(single, weight, use_reentrant=False).sum())
    assert seen == [torch.float64] * 2 and weight.grad.dtype == torch.float64


def test_values_that_are_zero_but_for_rounding_are_equal():
    noise, small = torch.tensor([3e-17, 0.0]).double(), torch.tensor([3e-4, 0.0]).double()
    assert difference(noise, -noise, 1e-8) == "" == difference(small, small * (1 + 1e-9), 1e-8)
    assert difference(small, small * (1 + 1e-7), 1e-8) == "out: differs by 3.0e-11 of 3.0e-04"
    assert difference(noise * 0, small, 1e-8) == "out: differs by 3.0e-04 of 0.0e+00"
