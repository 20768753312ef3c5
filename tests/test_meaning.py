"""What conversion does to the meaning of random programs: Python's own inheritance is the oracle.

Every run draws the same programs. `FUZZ_SEED=7` draws others, `FUZZ_SEED=random` new ones each time, and
`utils/fuzz_convert.py` many more.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.oracle.authored import SHAPES, STATEMENTS
from tests.oracle.programs import program_of
from tests.oracle.verdict import Outcome, judge


PROGRAMS = 500
AT_ONCE = 50
CHOSEN = os.environ.get("FUZZ_SEED", "0")
SEED = random.randrange(2**32) if CHOSEN == "random" else int(CHOSEN)


def test_the_grammar_has_a_statement_for_each_mined_one() -> None:
    mined = {word for point, words in SHAPES.items() if point.endswith("statement") for word in words}
    assert mined <= STATEMENTS.keys()


@pytest.mark.parametrize(
    "first",
    [pytest.param(one, marks=[pytest.mark.slow] if one > AT_ONCE else []) for one in range(0, PROGRAMS, AT_ONCE)],
)
def test_no_meaning_changes_in_silence(first: int) -> None:
    outcomes = {number: judge(program_of(SEED, number)).outcome for number in range(first, first + AT_ONCE)}
    wrong = [number for number, outcome in outcomes.items() if outcome in (Outcome.SILENT, Outcome.CRASHED)]
    assert not wrong, f"see `python utils/fuzz_convert.py --seed {SEED} --first {wrong[0]} --examples 1`"
    assert [*outcomes.values()].count(Outcome.SAME) > AT_ONCE // 2, "too few programs are converted"
