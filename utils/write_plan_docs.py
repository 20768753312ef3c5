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
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

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


Row = dict[str, Any]


@cache
def types_with_plan() -> tuple[str, ...]:
    """All model types of the library with a ``base_model_tp_plan``, sorted."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return tuple(sorted(name for name in CONFIG_MAPPING if getattr(CONFIG_MAPPING[name], "base_model_tp_plan", None)))


def types_without_row(rows: Sequence[Row]) -> str:
    """How many model types with a plan have a row of their own or are parts of one, and why the others have none."""
    having = [row for row in rows if row.get("committed")]
    own = {row["model"] for row in having}
    inside = {name: row["model"] for row in reversed(having) for name in row["committed"].get("types", ())}
    failed = {row["model"]: row["reason"] for row in rows if row["state"] == "failed"}
    wanted = types_with_plan()
    parts = [f"{name} in {inside[name]}" for name in wanted if name not in own and name in inside]
    missing = [name for name in wanted if name not in own and name not in inside]
    said = [f"{sum(name in own for name in wanted)} of the {len(wanted)} types with a plan have a row of their own"]
    said += [f"{len(parts)} are parts of the model of another row ({', '.join(parts)})"] if parts else []
    reasons: dict[str, list[str]] = {}
    for name in missing:
        reasons.setdefault(_why_none(name, failed), []).append(name)
    said += [f"{len(names)} have none because {why} ({', '.join(names)})" for why, names in reasons.items()]
    return "; ".join(said) + "."


def _why_none(name: str, failed: dict[str, str]) -> str:
    """Why a model type with a plan has no row for it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from modular_converter.parallel.errors import BuildError, PlanError, one_line
    from modular_converter.parallel.tiny.build import target_of

    if name in failed:
        return "no small instance of their models runs"
    try:
        config = target_of(name).load()[1]
    except BuildError:
        return "the library lists no base model for them, and no model with a row has them as parts"
    except PlanError as error:
        return one_line(error, 100)
    if config is not CONFIG_MAPPING[name]:
        return f"the library runs them with the model classes of {config.model_type}"
    return "they are not among these rows"


def classics(rows: Sequence[Row]) -> str:
    """The table of the models with policies in parallelformers, and how many have 90 % of their layer weights sharded."""
    from modular_converter.parallel.tables.coverage import plan_table, scope

    own = [row for row in rows if is_classic(row)]
    good = sum(row["state"] == "verified" and row.get("share", 0) >= 0.9 for row in own)
    said = f"{good} of {len(_classic_names())} verified with at least 90 % sharded. {scope(own)}".strip()
    return f"{said}\n\n{plan_table(own)}"


def is_classic(row: Row) -> bool:
    """Whether a row is of a model with a policy in parallelformers."""
    return row["model"] in _classic_names()


@cache
def _classic_names() -> frozenset[str]:
    from modular_converter.parallel.tables.coverage import CLASSICS

    return frozenset(name.removeprefix("folder:") for name in CLASSICS.split())


def tables(rows: list[Row], date: str) -> dict[str, Callable[[], str]]:
    """From each mark of the page to what makes its text."""
    from modular_converter.parallel.tables import coverage as table
    from modular_converter.parallel.tables.committed import committed_types, compare_committed, comparison_table

    versions = f"transformers {version('transformers')}, torch {version('torch').partition('+')[0]}"

    def compared(kind: str) -> str:
        return comparison_table(kind, [compare_committed(kind, name) for name in committed_types(kind)]).strip()

    return {
        "styles": styles,
        "summary": lambda: table.summary(rows, versions, date),
        "classics": lambda: classics(rows),
        "committed": lambda: f"{types_without_row(rows)}\n\n{table.committed_section(rows)}",
        "others": lambda: table.plan_table(row for row in rows if not is_classic(row)),
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
