"""The table of decisions in docs/advise.md: each row's command recommends what the row says."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest


ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "utils"))
compare_advice = importlib.import_module("compare_advice")
PAGE = (ROOT / "docs/advise.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("<!-- advice-decisions: start -->\n")[2].partition("<!-- advice-decisions: end -->")[0]
ROWS = [[cell.strip().strip("`") for cell in line.strip("|\n").split("|")] for line in TABLE.splitlines()[2:]]


@pytest.fixture(scope="module")
def subjects() -> dict[str, Any]:
    """The models of earlier rows, which are traced once."""
    return {}


def test_the_table_has_the_situations_of_the_guide() -> None:
    situations = " ".join(row[0] for row in ROWS)
    assert [row[0] for row in ROWS] == [situation for situation, _ in compare_advice.DECISIONS]
    for word in ("fits one device", "does not fit one device", "largest layer", "several nodes", "slow links"):
        assert word in situations


def test_the_tables_of_the_page_agree_on_what_is_predicted() -> None:
    settings = PAGE.partition("<!-- bench-advise: start -->")[2].partition("| all |")[2].split(" | ")[:5]
    estimators = PAGE.partition("| ours, all settings |")[2].splitlines()[0].strip("|").split(" | ")
    assert [one.strip() for one in settings] == [one.strip(" |") for one in estimators]


EACH = [pytest.param(*row, id=row[0], marks=[pytest.mark.slow] if number else []) for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(("situation", "arguments", "recommended"), EACH)
def test_a_command_recommends_what_its_row_says(
    situation: str, arguments: str, recommended: str, subjects: dict[str, Any]
) -> None:
    assert compare_advice.recommended(arguments, subjects) == recommended
