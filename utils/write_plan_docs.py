"""Make docs/figures/plans.md, and the table of styles of docs/plans.md: `python utils/write_plan_docs.py ROWS.jsonl` from the rows that `modular-plan coverage` kept.

The rows come from `modular-plan coverage --all --resume ROWS.jsonl`, which takes about 20 minutes on two cores; the
tables of expert and pipeline plans are measured here, in about three minutes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))


def styles() -> str:
    """The styles of rules as a table."""
    from modular_converter.parallel.styles import STYLES
    from tests.parallel.styles.examples import EXAMPLES

    lines = ["| style | what it does | example |", "|---|---|---|"]
    for style in STYLES.values():
        rules = "<br>".join(f"`{line.removeprefix('rule ')}`" for line in EXAMPLES[style.name].plan.splitlines())
        lines.append(f"| `{style.name}`{'' if style.library else ' (ours)'} | {style.does} | {rules} |")
    return "\n".join(lines)


def tables(rows: list[dict[str, object]], date: str) -> dict[str, Callable[[], str]]:
    """From each mark of the page to what makes its text."""
    from modular_converter.parallel.tables import coverage as table
    from modular_converter.parallel.tables.committed import committed_types, compare_committed, comparison_table
    from modular_converter.parallel.tables.coverage import types_without_row

    versions = f"transformers {version('transformers')}, torch {version('torch').partition('+')[0]}"

    def compared(kind: str) -> str:
        return comparison_table(kind, [compare_committed(kind, name) for name in committed_types(kind)]).strip()

    return {
        "styles": styles,
        "summary": lambda: table.summary(rows, versions, date),
        "classics": lambda: table.classics(rows),
        "committed": lambda: f"{types_without_row(rows)}\n\n{table.committed_section(rows)}",
        "others": lambda: table.others(rows),
        "expert": lambda: compared("expert"),
        "pipeline": lambda: compared("pipeline"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument(
        "--only", nargs="*", metavar="PART", help="parts of the page, such as classics; all by default"
    )
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="the day of the coverage run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    rows = [json.loads(line) for line in options.rows.read_text(encoding="utf-8").splitlines()]
    for name, make in tables(rows, options.date).items():
        if not options.only or name in options.only:
            write_part(DOCS / ("plans.md" if name == "styles" else "figures/plans.md"), name, make())


if __name__ == "__main__":
    main()
