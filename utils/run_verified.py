"""All verified models through `parallelize` on two CPU ranks: `python utils/run_verified.py COVERAGE.jsonl`.

COVERAGE is what `modular-plan coverage --resume` writes; its verified models run small, with the plan that it found,
and those that generate text do so. One pair of ranks serves all models. The rows go to a file, from which a second
call goes on; `--update docs/parallelize.md` writes the table.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LIMIT_S = 120


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in this thread after so many seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def run_all(rows: list[dict[str, Any]], done: Path, limit: int | None) -> None:
    """Append a row for each verified model that has none yet."""
    from modular_converter.parallel.commands.run import row
    from modular_converter.parallel.engine.ranks.session import Session

    known = {found["model"] for found in read(done)}
    todo = [one for one in rows if one["state"] == "verified" and one["model"] not in known][:limit]
    session: Session | None = None
    for one in todo:
        if session is None or session.ended:
            session = Session(("cpu", "cpu"), init_method="forkserver", limit_s=60.0)
            session.start()
        try:
            with limited(LIMIT_S):
                found = row(one, session)
        except TimeoutError as error:
            session.end("a model took too long")
            found = {"model": one["model"], "forward": None, "generate": None, "reason": str(error)}
        with done.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)
    if session is not None:
        session.end()


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, with the sums first."""
    equal = sum(row["forward"] == "equal" for row in rows)
    tried = [row for row in rows if row["generate"] or row["forward"] and row["reason"]]
    generated = [row for row in tried if not str(row["generate"]).startswith("no: ")]
    right = sum(row["generate"] == "equal" for row in generated)
    lines = [f"Outputs equal: {equal} of {len(rows)}; tokens equal: {right} of {len(generated)} that generate.", ""]
    lines += ["| model | forward | generate |", "|---|---|---|"]
    for row in sorted(rows, key=lambda found: str(found["model"])):
        forward = row["forward"] or f"failed: {row['reason'][:90]}"
        later = row["generate"] or ("" if not row["reason"] or not row["forward"] else f"failed: {row['reason'][:90]}")
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in (row["model"], forward, later)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coverage", type=Path)
    parser.add_argument("--done", type=Path, default=Path("run-verified.jsonl"))
    parser.add_argument("--limit", type=int, help="how many models at most")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.logging.set_verbosity_error()
    run_all(read(options.coverage), options.done, options.limit)
    text = table(read(options.done))
    if options.update:
        write_part(options.update, "models", text)
    print(text)


if __name__ == "__main__":
    main()
