"""A size that a plan shrinks meets a number of the code that no small instance reaches: the layer stays whole."""

import logging
from fractions import Fraction

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.proof.numbers import Decided, Sizes, first_difference  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads  # noqa: E402
from modular_converter.parallel.trace.graph import Comparison, Source  # noqa: E402
from tests.parallel import sizes_meet_numbers  # noqa: E402
from tests.parallel.deceptive import DeceptiveConfig  # noqa: E402


HALF = frozenset({Fraction(1, 2)})


@pytest.mark.parametrize(
    "name",
    ["BySlice"]
    + [
        pytest.param(one, marks=pytest.mark.slow)
        for one in ("ByMin", "ByFloat", "ByTable", "BeyondLength", "ByRemainder")
    ],
)
def test_the_answers_are_right_beyond_every_number_of_the_code(name, caplog):
    torch.manual_seed(1)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 32, "num_hidden_layers": 2}
    model = sizes_meet_numbers.STACKS[name](DeceptiveConfig(**sizes, vocab_size=96)).eval()
    with caplog.at_level(logging.WARNING):
        plan, *_ = select_plan(model, None, 2)
    assert (
        "stays whole on each of 2 ranks: its code" in caplog.text or "no small instance has their kind" in caplog.text
    )
    for length in (9, 100):
        assert check_model_on_threads(model, plan, {"input_ids": torch.randint(5, 90, (1, length))}, 2).passed


def decided(operator, left, right, length=False):
    side = Source("shape" if length else "const", right)
    return Decided(Comparison(operator, Source("attr", left, name="heads"), side))


def test_the_sizes_of_a_rank_are_its_share_of_the_whole_ones():
    assert first_difference([Sizes((2, 32, 8))], [Sizes((2, 16, 8))], HALF) is None
    assert first_difference([Sizes((16,))], [Sizes((0,))], HALF) == ("the sizes 16", "the sizes 0")
    assert first_difference([Sizes((48,))], [Sizes((16,))], HALF) is not None
    assert first_difference([Sizes((2,))], [Sizes((2, 1))], HALF) is not None


def test_a_slice_of_a_shared_length_shrinks_with_it():
    assert first_difference([Sizes((0, 16), 32)], [Sizes((0, 8), 16)], HALF) is None
    assert first_difference([Sizes((0, 16), 32)], [Sizes((0, 16), 16)], HALF) is not None
    assert first_difference([Sizes((0, -8), 32)], [Sizes((0, -4), 16)], HALF) is None
    assert first_difference([Sizes((0, 64), 12)], [Sizes((0, 32), 12)], HALF) is not None


def test_a_comparison_has_the_same_result_at_each_length():
    assert first_difference([decided("gt", 32, 4)], [decided("gt", 16, 4)], HALF) is None
    assert first_difference([decided("gt", 32, 16)], [decided("gt", 16, 16)], HALF) is not None
    # Both hold for 12 tokens; for 20, the rank's does not.
    assert first_difference([decided("gt", 32, 12, True)], [decided("gt", 16, 12, True)], HALF) is not None
    assert first_difference([decided("gt", 32, 4)], [], HALF) == ("32 > 4 (true)", "nothing")
