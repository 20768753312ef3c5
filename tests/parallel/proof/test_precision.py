"""The precision in which numbers are compared; numbers that no precision can hold are left out and named."""

import pytest
import torch

from modular_converter.parallel.proof.judge import Reference
from modular_converter.parallel.proof.on_threads import check_model_on_threads
from modular_converter.parallel.proof.precision import _agree, _as_finite, doubled, finer_outputs, outputs_alone
from modular_converter.parallel.proof.subject import subject_of
from tests.parallel.proof.test_compare import INPUTS, PAIR, Pair


def test_what_float32_cannot_hold_is_judged_in_double_precision():
    model = Pair(after=lambda x: (x + 1e6) - 1e6)
    assert subject_of(model, INPUTS).whole.outputs[0].dtype is torch.float64
    assert check_model_on_threads(model, PAIR, INPUTS, 2).passed
    assert subject_of(Pair(), INPUTS).whole.outputs[0].dtype is torch.float32


def test_gradients_that_rounding_decides_are_left_out_and_named():
    model = Pair(after=lambda x: x + 1e-14 * torch.sin(1e14 * x))
    whole = subject_of(model, INPUTS).whole
    assert whole.gradients == [{}] and "rounding decides" in whole.gaps[0]
    verdict = check_model_on_threads(model, PAIR, INPUTS, 2)
    assert verdict.passed and set(verdict.evidence.unproven) == {"up.weight", "up.bias", "down.weight"}


def test_a_model_that_overflows_in_double_precision_is_judged_in_single():
    model = Pair(after=lambda x: x if x.dtype is torch.float32 else x / 0)
    assert subject_of(model, INPUTS).whole.outputs[0].dtype is torch.float32
    assert check_model_on_threads(model, PAIR, INPUTS, 2).passed


def test_outputs_alone_are_finer_in_double_precision_only_where_it_runs_and_tells_more():
    def finer(after):
        return finer_outputs(outputs_alone(Pair(after=after), INPUTS))

    found = finer(lambda x: (x + 1e6) - 1e6)
    assert found is not None and found.whole.outputs[0].dtype is torch.float64 and not found.whole.gradients
    assert finer(lambda x: x) is None
    assert finer(lambda x: x if x.dtype is torch.float32 else x / 0) is None
    assert finer(lambda x: x @ torch.ones(8, 8)) is None  # in float32 alone


def numbers(output=(1.0, 2.0), gradient=(1.0, 2.0), more=(), start="", name="w"):
    outputs = [torch.tensor(output, dtype=torch.float64), *(torch.tensor(one) for one in more)]
    return Reference(outputs, [{name: torch.tensor(gradient, dtype=torch.float64)}], start=start)


NAN = float("nan")


@pytest.mark.parametrize(
    "double, finite",
    [
        (numbers(), True),
        (numbers(output=(1.0, NAN)), False),
        (numbers(gradient=(NAN, 2.0)), False),
        (numbers(gradient=(NAN, 2.0), name="other"), True),
        (numbers(more=[[1.0]]), False),
        (numbers(start="layer"), False),
    ],
)
def test_double_precision_must_keep_what_single_has(double, finite):
    assert _as_finite(double, numbers()) is finite
    assert _as_finite(numbers(), numbers(output=(NAN, 2.0), gradient=(NAN, 2.0)))


@pytest.mark.parametrize(
    "single, agree",
    [
        (numbers(), True),
        (numbers(output=(1.0 + 1e-5, 2.0)), True),
        (numbers(output=(1.0 + 1e-4, 2.0)), False),
        (numbers(gradient=(1.0 + 5e-5, 2.0)), True),
        (numbers(gradient=(1.0 + 5e-4, 2.0)), False),
        (numbers(gradient=(NAN, 2.0)), False),
        (numbers(more=[[1.0]]), False),
        (numbers(name="other"), False),
    ],
)
def test_two_precisions_agree_well_within_the_tolerances(single, agree):
    """A tenth of those of a verdict, 2e-4 and 1e-3."""
    assert _agree(single, numbers()) is agree


def test_floating_tensors_alone_are_doubled():
    ids, half = torch.arange(2), torch.ones(2, dtype=torch.float16)
    found = doubled([half, (ids, half), 3, None])
    assert found[0].dtype is found[1][1].dtype is torch.float64 and found[1][0] is ids
    assert type(found) is list and type(found[1]) is tuple and found[2:] == [3, None]
