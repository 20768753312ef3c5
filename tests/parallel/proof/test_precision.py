"""In which precision numbers are compared, and that what no precision holds is left out and said."""

import torch

from modular_converter.parallel.proof.on_threads import check_model_on_threads
from modular_converter.parallel.proof.precision import finer_outputs, outputs_alone
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
