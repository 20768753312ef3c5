"""After random edits, a check with a cache, one without, and a fresh process elsewhere agree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


UTILS = Path(__file__).parents[3] / "utils"


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def fuzz_check(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(UTILS))
    import fuzz_check

    yield fuzz_check
    for name in [name for name in sys.modules if name.startswith("fuzz_")]:
        sys.modules.pop(name)


@pytest.mark.parametrize(("kind", "edits"), [("small", 6), slow("small", 25), slow("zoo", 5)])
def test_verdicts_agree_after_random_edits(fuzz_check, record_property, kind, edits):
    seed = int(os.environ.get("FUZZ_SEED", "836320"))  # one walk in the gate; the script walks anywhere
    figures = fuzz_check.fuzz([kind], range(1, edits + 1), seed)
    record_property("summary", f"seed {seed}: {figures}")
    assert figures.edits.total() == edits
    assert not figures.failures, (seed, figures.failures)


def test_a_run_goes_on_where_another_ended(fuzz_check, monkeypatch):
    walks = []
    monkeypatch.setattr(fuzz_check, "walk", lambda kind, seed, edits, figures: walks.append((kind, seed, edits)))
    fuzz_check.fuzz(["small", "zoo"], range(1, 251), 5)
    whole = walks.copy()
    walks.clear()
    fuzz_check.fuzz(["small", "zoo"], range(1, 101), 5)
    fuzz_check.fuzz(["small", "zoo"], range(140, 251), 5)
    assert walks == whole and [len(edits) for _, _, edits in walks] == [100, 100, 50]


@pytest.mark.parametrize("lies", ["warm", "cold"])
def test_a_verdict_that_differs_is_noticed(fuzz_check, monkeypatch, lies):
    honest = fuzz_check.verdict

    def verdict(root, cache, since=None):
        return ["0"] if bool(cache) == (lies == "warm") else honest(root, cache, since)

    monkeypatch.setattr(fuzz_check, "verdict", verdict)
    assert fuzz_check.fuzz(["small"], range(1, 3), 1).failures
