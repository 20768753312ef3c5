"""The judge alone, on plain tensors: equality, and the difference that is named first."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.proof.judge import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Reference,
    errors_of,
    gradient_errors,
    judge,
    relative_error,
    scale_of,
    worst_error,
)


WHOLE = Reference(
    [torch.tensor([4.0, -4.0]), torch.tensor([2.0])],
    [{"large.weight": torch.tensor([100.0, -100.0]), "small.bias": torch.tensor([1e-5, -1e-5])}],
    tokens=[torch.tensor([8.0])],
)


def changed(outputs=(0.0, 0.0), tokens=(0.0,), gradients=(0.0, 0.0)):
    """The numbers of another run, each tensor moved by so much of its largest entry."""
    return Reference(
        [t + by * t.abs().max() for t, by in zip(WHOLE.outputs, outputs)],
        [{name: g + by * g.abs().max() for (name, g), by in zip(WHOLE.gradients[0].items(), gradients)}],
        3,
        [t + by * t.abs().max() for t, by in zip(WHOLE.tokens, tokens)],
    )


def test_equal_numbers_pass_and_the_collectives_are_kept():
    verdict = judge(changed(), WHOLE, 2)
    assert verdict.passed and (verdict.ranks, verdict.collectives) == (2, 3)
    assert verdict.output_error == verdict.gradient_error == 0.0


@pytest.mark.parametrize(
    "given, layer, said",
    [
        ({"outputs": (0.0, 0.5)}, "the outputs", "output 1 differs by 0.5 of its scale"),
        ({"tokens": (0.25,)}, "the decoded tokens", "their logits differ by 0.25 of their scale"),
        ({"gradients": (0.125, 0.0)}, "large.weight", "the gradient of large.weight differs by 0.12 of its scale"),
        ({"outputs": (math.nan, 0.0), "gradients": (9.0, 9.0)}, "the outputs", "output 0 differs by inf"),
        ({"tokens": (math.nan,)}, "the decoded tokens", "their logits differ by inf"),
    ],
)
def test_the_first_difference_is_named(given, layer, said):
    verdict = judge(changed(**given), WHOLE, 2)
    assert not verdict.passed and verdict.layer == layer and said in verdict.reason


@pytest.mark.parametrize("share, passes", [(0.9, True), (1.1, False)])
def test_the_tolerances_are_the_borders(share, passes):
    assert judge(changed(outputs=(share * OUTPUT_TOLERANCE, 0.0)), WHOLE, 2).passed is passes
    assert judge(changed(gradients=(share * GRADIENT_TOLERANCE, 0.0)), WHOLE, 2).passed is passes


def test_a_small_gradient_is_judged_beside_the_largest():
    assert judge(changed(gradients=(0.0, 1.0)), WHOLE, 2).passed
    alone = gradient_errors(
        {"small.bias": torch.tensor([2e-5, 0.0])}, {"small.bias": WHOLE.gradients[0]["small.bias"]}
    )
    assert alone["small.bias"] > 0.5


def test_a_rank_is_judged_on_its_share_at_the_scale_of_the_whole():
    found = {"w": torch.tensor([1.5])}
    whole = {"w": torch.tensor([100.0, 100.0, 1.0])}
    errors = gradient_errors(found, whole, lambda name, gradient: gradient[2:])
    assert errors["w"] == pytest.approx(0.5)
    assert gradient_errors(found, whole)["w"] == math.inf


def test_what_is_missing_is_a_difference():
    nothing = Reference([], [])
    assert "no floating output" in judge(nothing, nothing, 2).reason
    assert "0 outputs instead of 2" in judge(nothing, WHOLE, 2).reason
    assert gradient_errors({}, WHOLE.gradients[0]) == dict.fromkeys(WHOLE.gradients[0], math.inf)
    assert not judge(Reference(WHOLE.outputs, [], tokens=WHOLE.tokens), WHOLE, 2).passed
    assert errors_of([], WHOLE.tokens) == errors_of(WHOLE.tokens, []) == [math.inf]
    assert worst_error([], []) == math.inf
    found = changed()
    found.tokens = []
    assert judge(found, WHOLE, 2).layer == "the decoded tokens"


def test_a_whole_model_without_finite_outputs_proves_nothing():
    broken = Reference([torch.tensor([math.nan])], [])
    assert "not finite" in judge(broken, broken, 2).reason


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.uint8])
def test_integers_and_booleans_are_compared_exactly(kind):
    codes = torch.tensor([0, 1, 1, 0]).to(kind)
    assert relative_error(codes.clone(), codes) == 0.0
    assert relative_error(codes.flip(0).roll(1), codes) == math.inf
    assert relative_error(codes.float(), codes) == math.inf


def test_complex_numbers_are_compared_with_their_phase():
    want = torch.polar(torch.ones(8), torch.arange(8.0))
    assert relative_error(want * 1j, want) == pytest.approx(2**0.5)


def test_a_mask_value_does_not_set_the_scale():
    logits = torch.linspace(-1, 1, 64)
    logits[:60:2] = torch.finfo(logits.dtype).min
    doubled = torch.where(logits < -2, logits, 2 * logits)
    assert relative_error(doubled, logits) > 0.5


def test_a_large_region_does_not_hide_a_small_one():
    want = torch.cat([torch.linspace(1, 2, 50) * 1e7, torch.linspace(1, 2, 50)])
    assert relative_error(torch.cat([want[:50], want[50:] * 1.01]), want) == pytest.approx(0.01, rel=0.1)


def test_tiny_numbers_have_a_scale_of_their_own():
    want = torch.linspace(1, 2, 10) * 1e-20
    assert relative_error(want * 1.5, want) > 0.4


def test_nan_beside_nan_proves_nothing():
    wholly = Reference([torch.tensor([1.0, 2.0]), torch.tensor([math.nan])], [{"w": torch.tensor([math.nan, 1.0])}])
    verdict = judge(wholly, wholly, 2)
    assert verdict.passed and verdict.evidence.gaps == ("output 1 has no finite entry",) and not wholly.proven


def test_zeros_prove_nothing():
    zeros = Reference([torch.zeros(3)], [])
    assert "nothing but zeros" in judge(zeros, zeros, 2).reason
    mixed = Reference([torch.ones(3), torch.zeros(3)], [])
    assert judge(mixed, mixed, 2).evidence.gaps == ("output 1 has nothing but zeros",)
    assert not judge(Reference([torch.ones(3), torch.full((3,), 1e-3)], []), mixed, 2).passed


def test_gradients_of_each_output_have_a_scale_of_their_own():
    """The same weight: right behind the large output, wrong behind the small one."""
    whole = Reference([torch.ones(1)] * 2, [{"w": torch.full((2,), 1e9)}, {"w": torch.ones(2)}])
    found = Reference([torch.ones(1)] * 2, [{"w": torch.full((2,), 1e9)}, {"w": torch.full((2,), 0.5)}])
    assert judge(found, whole, 2).layer == "w"


def test_a_gradient_of_rounding_alone_proves_no_weight():
    gradients = {"w": torch.ones(4), "key.bias": torch.full((4,), 1e-7), "unused": torch.zeros(4)}
    assert Reference([], [gradients]).proven == {"w"}


ENTRIES = st.sampled_from([0.0, -0.0, 0.5, -3.0, 1e-30, math.inf, -math.inf, math.nan])
KINDS = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.complex64])


@given(st.lists(st.tuples(ENTRIES, ENTRIES), max_size=4), KINDS)
def test_the_error_is_that_of_the_finite_entries_and_the_others_must_be_in_the_same_places(pairs, kind):
    got, want = (torch.tensor([pair[side] for pair in pairs], dtype=kind) for side in (0, 1))
    finite = [math.isfinite(b) for _, b in pairs]
    sizes = sorted({abs(complex(b)) for b in want[finite].tolist()} - {0.0}) if pairs else []
    assert scale_of(want) == pytest.approx(sizes[(len(sizes) - 1) // 4] if sizes else 0.0)
    if any(str(a) != str(b) for (a, b), known in zip(pairs, finite) if not (known and math.isfinite(a))):
        assert relative_error(got, want, 2.0) == math.inf
    else:
        both = zip(got[finite].tolist(), want[finite].tolist()) if pairs else ()
        apart = max((abs(complex(a) - complex(b)) / max(abs(complex(b)), 2.0) for a, b in both), default=0)
        assert relative_error(got, want, 2.0) == pytest.approx(apart, rel=1e-2)


def test_entries_that_are_not_finite_are_compared_across_types():
    single, double = torch.tensor([1.0, math.inf]), torch.tensor([1.0, math.inf], dtype=torch.float64)
    assert relative_error(double, single) == relative_error(single, double) == 0.0
    assert relative_error(-double, single) == relative_error(single, -double) == math.inf
