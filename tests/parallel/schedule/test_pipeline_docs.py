"""The table and the picture of docs/pipeline.md equal the results of the simulation."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[3]


@pytest.fixture
def writer(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "utils"))
    spec = importlib.util.spec_from_file_location("write_pipeline_docs", ROOT / "utils" / "write_pipeline_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("marked_pages", None)


def test_the_page_and_the_picture_are_current(writer):
    page = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    part = page.partition("<!-- bubbles: start -->\n")[2].partition("\n<!-- bubbles: end -->")[0]
    assert part == writer.table(), "run `python utils/write_pipeline_docs.py`"
    assert (ROOT / "docs" / "pipeline.svg").read_text(encoding="utf-8") == writer.picture()


def test_the_table_agrees_with_the_formulas(writer):
    rows = {row.split(" | ")[0].strip("| "): re.findall(r"([\d.]+)%", row) for row in writer.table().splitlines()[2:]}
    for name, each, thirds in (("GPipe", 1, 1), ("1F1B", 1, 1), ("Interleaved1F1B", 2, 1), ("LoopedBFS", 2, 1)):
        want = [100 * (p - 1) / (each * thirds * m + p - 1) for p, m in writer.SIZES]
        assert [float(cell) for cell in rows[name]] == pytest.approx(want, abs=0.051)
    want = [100 * (p - 1) / (6 * m + p - 1) for p, m in writer.SIZES]
    assert [float(cell) for cell in rows["InterleavedZeroBubble"]] == pytest.approx(want, abs=0.051)
