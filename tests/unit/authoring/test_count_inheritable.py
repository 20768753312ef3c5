"""The lines that could be inherited, counted by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.authoring.test_modularize import ROOT, library_of, opened


OLD = """# Copyright {year} The authors.
def old_scale(x, by):
    total = x * by
    return total


class OldFeed(Base):
    def __init__(self, config):
        super().__init__()
        self.up = Linear(config.hidden_size)
        self.down = Linear(config.inner_size)

    def forward(self, x):
        x = self.up(x)
        return self.down(x)
"""
NEW = """# Copyright 2024 The authors.
def new_scale(x, by):
    total = x * by
    return total


class NewFeed(Base):
    def __init__(self, config):
        super().__init__()
        self.up = Linear(config.hidden_size)
        self.gate = Linear(config.hidden_size)

    def forward(self, x):
        x = self.up(x)
        return self.down(x)
"""


@pytest.mark.parametrize("year, whole, parts", [(2020, 3, 3 + 5), (2025, 0, 0)])
def test_lines_that_one_definition_of_an_older_model_has(
    year: int, whole: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole function; of the class two statements of `__init__` and `forward`: a younger model gives none."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "utils"), *sys.path])
    from count_inheritable import count_of_model

    models = library_of(tmp_path, old=OLD.format(year=year), new=NEW)
    counts = count_of_model(*opened(models, "new"))
    assert counts["modeling lines"] == NEW.count("\n")
    assert counts["modeling definitions"] == 3 + 9
    assert (counts["modeling whole"], counts["modeling parts"]) == (whole, parts)
