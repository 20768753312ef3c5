"""25 families at three configurations of their own, on one device and two ranks: `python utils/run_families.py --write`.

Outputs of `parallelize` and gradients of its plan are compared with one device's. The exit code is 1 where they differ.
Rows go to `--done`, from which a second call goes on; `--write` puts the table into docs/figures/plans.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from marked_pages import write_part  # noqa: E402

from tests.parallel.families import FAMILIES, VARIATIONS, compared  # noqa: E402


def main() -> int:
    """Compare the families; the exit code is 1 where a sharded model differs from the whole one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="class names of transformers (25 of many kinds)")
    parser.add_argument("--done", type=Path, default=Path("run-families.jsonl"))
    parser.add_argument("--write", action="store_true", help="put the table into docs/figures/plans.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from transformers.utils import logging

    from modular_converter.parallel.ranks.session import Session

    logging.set_verbosity_error()
    lines = options.done.read_text(encoding="utf-8").splitlines() if options.done.exists() else []
    rows: dict[str, list[str]] = dict(json.loads(line) for line in lines)
    with Session(("cpu", "cpu"), init_method="forkserver", limit_s=300.0) as session:
        session.start()
        for family in [name for name in options.families or FAMILIES if name not in rows]:
            rows[family] = [compared(family, variation, session) for variation in VARIATIONS]
            print(family, *rows[family], sep="\n  ", flush=True)
            with options.done.open("a", encoding="utf-8") as file:
                file.write(json.dumps([family, rows[family]]) + "\n")
    text = table(rows)
    print(text)
    if options.write:
        write_part(ROOT / "docs" / "figures" / "plans.md", "families", text)
    return int(any(cell.startswith(("differs", "outputs", "failed")) for row in rows.values() for cell in row))


def table(rows: dict[str, list[str]]) -> str:
    """The rows as Markdown, with the sum first."""
    cells = [cell for row in rows.values() for cell in row]
    equal = sum(cell == "equal" for cell in cells)
    refused = sum(cell.startswith("refused") for cell in cells)
    said = f"{equal} of {len(cells)} configurations of {len(rows)} families equal, {refused} refused with a reason."
    lines = [said, "", f"| class | {' | '.join(map(str, VARIATIONS))} |", "|---" * (1 + len(VARIATIONS)) + "|"]
    lines += [f"| {name} | {' | '.join(cell.replace('|', '/') for cell in row)} |" for name, row in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
