"""Make docs/plans.md: `python utils/write_plan_docs.py ROWS.jsonl` from the rows that `modular-plan coverage` kept.

The rows come from `modular-plan coverage --all --resume ROWS.jsonl`, which takes about 20 minutes on two cores; the
tables of expert and pipeline plans are measured here, in about three minutes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import warnings
from importlib.metadata import version
from pathlib import Path

from marked_pages import write_part


PAGE = Path(__file__).resolve().parent.parent / "docs" / "plans.md"


def styles() -> str:
    """The styles of rules as a table."""
    from modular_converter.parallel.styles import STYLES

    lines = ["| style | what it does | example |", "|---|---|---|"]
    for style in STYLES.values():
        rules = "<br>".join(f"`{line.removeprefix('rule ')}`" for line in style.example.plan.splitlines())
        lines.append(f"| `{style.name}`{'' if style.library else ' (ours)'} | {style.does} | {rules} |")
    return "\n".join(lines)


def tables(rows: list[dict[str, object]], date: str) -> dict[str, str]:
    """The text for each mark of the page."""
    from modular_converter.parallel.tables import coverage_table as table
    from modular_converter.parallel.tables.committed import committed_types, compare_committed, comparison_table

    versions = f"transformers {version('transformers')}, torch {version('torch').partition('+')[0]}"
    found = {
        "styles": styles(),
        "summary": table.summary(rows, versions, date),
        "classics": table.classics(rows),
        "committed": table.committed_section(rows),
        "others": table.others(rows),
    }
    for kind in ("expert", "pipeline"):
        found[kind] = comparison_table(kind, [compare_committed(kind, name) for name in committed_types(kind)]).strip()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="the day of the coverage run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    rows = [json.loads(line) for line in options.rows.read_text(encoding="utf-8").splitlines()]
    for name, text in tables(rows, options.date).items():
        write_part(PAGE, name, text)


if __name__ == "__main__":
    main()
