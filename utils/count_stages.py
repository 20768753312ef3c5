"""Count the model types that `Pipeline` accepts: `python utils/count_stages.py DONE.jsonl [--types NAME ...] [--update
docs/stages.md]`.

Each model type of transformers that can be built small is traced, its plan derived, and run in stages in this process, cut
between each two layers, against the whole model: what `Pipeline` does before it divides a model. DONE keeps a row a type,
and a later call goes on after them.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import warnings
from pathlib import Path

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LIMIT_S = 150
"""Seconds a type. `Pipeline` has no limit; most types take 1 to 5 s on an idle core."""


def row_of(name: str) -> dict[str, str]:
    """``accepted``, ``refused`` with the reason, or ``not built``."""
    from modular_converter.parallel.errors import one_line
    from modular_converter.parallel.pipeline.prove import proven_pipeline_plan
    from modular_converter.parallel.tables.coverage import limited
    from modular_converter.parallel.tiny.build import build, target_of

    state, reason = "not built", ""
    try:
        with limited(LIMIT_S):
            small = build(target_of(name))
            state = "refused"
            proven_pipeline_plan(small.model, small.inputs, name)
            state = "accepted"
    except Exception as error:  # one model must not stop the table
        reason = re.sub(r"^.*?(cannot be cut into stages|gives other numbers than whole): ", "", one_line(error, 300))
    return {"name": name, "state": state, "reason": reason}


def table(rows: list[dict[str, str]]) -> str:
    """The share that is accepted, and the reasons for the rest, the most frequent first."""
    built = [row for row in rows if row["state"] != "not built"]
    accepted = sum(row["state"] == "accepted" for row in built)
    kinds = collections.defaultdict(list)
    for row in built:
        if row["state"] != "accepted":
            kinds[re.sub(r"`[^`]*`(, `[^`]*`)*", "…", row["reason"])[:110].replace("|", "/")].append(row["name"])
    lines = [f"{accepted} of {len(built)} model types that can be built small ({len(rows)} tried).\n"]
    lines += ["| reason | types | such as |", "|---|---|---|"]
    for reason, names in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {reason} | {len(names)} | {', '.join(sorted(names)[:3])} |")
    return "\n".join(lines)


def main() -> None:
    """Run the types that are not done yet, print the table and, if asked to, write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("done", type=Path)
    parser.add_argument("--types", nargs="+", help="model types; all of the library if left out")
    parser.add_argument("--update", metavar="PAGE")
    options = parser.parse_args()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from modular_converter.parallel.tables.coverage import RowFile

    warnings.simplefilter("ignore")
    done = RowFile(options.done)
    names = options.types or sorted(CONFIG_MAPPING_NAMES)
    for name in names:
        if name not in {row["name"] for row in done.rows}:
            done.append([row_of(name)])
    text = table([row for row in done.rows if row["name"] in names])
    print(text)
    if options.update:
        write_part(ROOT / options.update, "accepted", text)


if __name__ == "__main__":
    main()
