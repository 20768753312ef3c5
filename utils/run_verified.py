"""All verified models through `parallelize` on two CPU ranks: `python utils/run_verified.py COVERAGE.jsonl`.

COVERAGE is what `modular-plan coverage --resume` writes; its verified models run small, with the plan that it found,
and those that generate text do so. One pair of ranks serves all models. The rows go to a file, from which a second
call goes on; `--update docs/figures/verified-models.md` writes the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LIMIT_S = 120


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def row(covered: dict[str, Any], session: Any) -> dict[str, Any]:
    """One line of the table of models: a verified model through `parallelize` on a running session.

    Args:
        covered: a row of the coverage: ``model``, ``plan`` as text, and where they are known ``folder`` and ``class``.
        session: running ranks; its death is the row's reason.
    """
    from modular_converter.parallel.errors import PlanError, one_line
    from modular_converter.parallel.tiny.build import build

    name = covered["model"]
    found: dict[str, Any] = {"model": name, "forward": None, "generate": None, "reason": ""}
    start = time.monotonic()
    try:
        small = build(_target(covered))
        found["forward"] = _compared(small.model, small.inputs, covered["plan"], session, False)
        head = generating(name)
        if head is not None:
            found["generate"] = _generated(head, session)
    except PlanError as error:
        found["reason"] = str(error)[:300]
    except Exception as error:  # one model must not stop the table
        found["reason"] = one_line(error, 300)
    found["seconds"] = round(time.monotonic() - start, 2)
    return found


def _target(covered: dict[str, Any]) -> Any:
    from modular_converter.parallel.tiny.build import target_of
    from modular_converter.parallel.tiny.target import targets_of_folder

    if not covered.get("folder"):
        return target_of(covered["model"])
    targets = targets_of_folder(covered["folder"])
    return next(t for t in targets if t.name == covered["model"] and t.model_class.endswith(f".{covered['class']}"))


def generating(name: str) -> str | None:
    """The class path of a type's model that generates text from ids; None without one."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    for table in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES):
        kind = getattr(transformers, str(table.get(name, "")), None)
        if kind is not None and kind.can_generate():
            return f"{kind.__module__}.{kind.__qualname__}"
    return None


def _generated(head: str, session: Any) -> str:
    from modular_converter.parallel.errors import BuildError
    from modular_converter.parallel.tiny.build import build, target_of

    target = target_of(head)
    for overrides in ({}, {"is_decoder": True}):  # some classes generate only when they are told that they may
        try:
            small = build(target, overrides)
        except BuildError:
            continue
        return _compared(small.model, small.inputs, None, session, True)
    return "no: it cannot be built small"


def _doubled(value: Any) -> Any:
    return value.double() if hasattr(value, "is_floating_point") and value.is_floating_point() else value


def _compared(model: Any, inputs: dict[str, Any], plan: str | None, session: Any, generate: bool) -> str:
    """``equal``, or how the answers differ; the ranks have dropped the model afterwards."""
    import torch

    from modular_converter.parallel.api import parallelize
    from modular_converter.parallel.proof.compare import generation_inputs

    def answers() -> list[Any]:
        torch.manual_seed(0)
        with torch.no_grad():
            if generate:
                given = generation_inputs(model, inputs) or {}
                return [model.generate(**given, max_new_tokens=6, min_new_tokens=6, do_sample=False)]
            from modular_converter.parallel.trace.record import tensors_in

            return [t for t in tensors_in(model(**inputs)) if t.is_floating_point()]

    try:
        want = answers()
    except Exception as error:  # a small instance that does not generate says nothing about its parallel form
        if generate:
            return f"no: whole it fails too ({type(error).__name__})"
        raise
    parallelize(model, plan=plan, session=session)
    try:
        got = answers()
    finally:
        if not session.ended:
            model.cpu()
    if generate:
        return "equal" if torch.equal(got[0], want[0]) else f"other tokens: {json.dumps(got[0].tolist())[:80]}"
    from modular_converter.parallel.commands.run import deviation

    worst = deviation(got, want)
    if worst > 2e-4 and next(model.parameters()).dtype == torch.float32:
        # Random weights can make a model so ill-conditioned that any other order of sums gives other numbers.
        return _compared(model.double(), {k: _doubled(v) for k, v in inputs.items()}, plan, session, False)
    return "equal" if worst <= 2e-4 else f"differs by {worst:.1e}"


def run_all(rows: list[dict[str, Any]], done: Path, limit: int | None) -> None:
    """Append a row for each verified model that has none yet."""
    from modular_converter.parallel.errors import PlanError
    from modular_converter.parallel.ranks.session import Session
    from modular_converter.parallel.tables.coverage import limited

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
        except PlanError as error:
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
