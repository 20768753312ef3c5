"""After random edits, a check with a cache, one without, and a fresh process elsewhere agree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


UTILS = Path(__file__).parents[3] / "utils"


@pytest.fixture
def fuzz_check(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(UTILS))
    import fuzz_check

    yield fuzz_check
    for name in ("fuzz_check", "fuzz_edits"):
        sys.modules.pop(name)


@pytest.mark.parametrize(("models", "edits"), [(False, 60), (True, 10)], ids=["small models", "our models"])
def test_verdicts_agree_after_random_edits(fuzz_check, record_property, models, edits):
    seed = int(os.environ.get("FUZZ_SEED", "836320"))  # one walk in the gate; the script walks anywhere
    figures = fuzz_check.fuzz(fuzz_check.MODELS if models else None, edits, seed, fresh_every=edits // 2)
    record_property("summary", f"seed {seed}: {figures}")
    assert not figures.failures, (seed, figures.failures)


def test_a_verdict_that_differs_is_noticed(fuzz_check, monkeypatch):
    honest = fuzz_check.verdict
    monkeypatch.setattr(fuzz_check, "verdict", lambda root, cache: ["0"] if cache else honest(root, cache))
    assert fuzz_check.fuzz(None, 8, 1).failures
