"""The precision in which numbers are compared; numbers that no precision can hold are left out and named."""

import pytest
import torch

from modular_converter.parallel.proof.compare import reference
from modular_converter.parallel.proof.judge import GRADIENT_TOLERANCE, Reference, gradient_errors
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.proof.precision import (
    Subject,
    _agree,
    _as_finite,
    _with_noise,
    doubled,
    finer_outputs,
    in_float64,
    outputs_alone,
    without_unstable,
)
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


def test_gradients_that_rounding_moves_by_nearly_the_tolerance_are_left_out():
    """Chance would decide about them: three draws of noise stay below the tolerance, a right plan may not."""
    model = Pair(after=lambda x: x + 1.3e-18 * torch.sin(1e14 * x))
    whole = reference(model.double(), {"x": INPUTS["x"].double()})
    for seed in range(3):
        found = reference(_with_noise(model, seed), {"x": INPUTS["x"].double()})
        errors = gradient_errors(found.gradients[0], whole.gradients[0])
        assert all(GRADIENT_TOLERANCE / 10 < error < GRADIENT_TOLERANCE for error in errors.values())
    subject = without_unstable(Subject(model, {"x": INPUTS["x"].double()}, whole))
    assert subject.whole.gradients == [{}] and "rounding decides" in subject.whole.gaps[0]


def test_outputs_that_rounding_decides_are_left_out():
    model = Pair(after=lambda x: (x, torch.sin(1e17 * x)))
    whole = reference(model.double(), {"x": INPUTS["x"].double()})
    assert len(whole.outputs) == 2 and not whole.unstable
    assert without_unstable(Subject(model, {"x": INPUTS["x"].double()}, whole)).whole.unstable == {1}


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


class Remembering(Pair):
    """Keeps a table of its first forward, as a codebook does: neither a parameter nor a buffer."""

    table: torch.Tensor | None = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.eye(8, dtype=x.dtype)
        return torch.nn.functional.linear(super().forward(x), self.table)


def test_tensors_that_a_model_keeps_are_doubled_too():
    model = Remembering(after=lambda x: (x + 1e6) - 1e6)
    model(**INPUTS)
    found = in_float64(model, INPUTS)
    assert found.whole.outputs[0].dtype is found.model.table.dtype is torch.float64
    assert model.table.dtype is torch.float32
    assert check_model_on_threads(model, PAIR, INPUTS, 2).passed


def test_a_kept_tensor_of_a_fixed_type_stays_where_the_model_runs_with_it():
    model = Remembering(after=lambda x: (x.float() @ model.fixed).to(x.dtype))
    model.fixed = torch.eye(8)
    found = in_float64(model, INPUTS)
    assert found.model.fixed.dtype is torch.float32 and found.whole.outputs[0].dtype is torch.float64


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
