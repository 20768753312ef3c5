"""Many models, one table: derive and prove each, keep what is done in a file, go on where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modular_converter.parallel.errors import PlanError


Row = dict[str, Any]
MODEL_LIMIT_S = 40


def cover(names: Iterable[str], done: Path | None, ranks: tuple[int, ...], tick: Callable[[Row], None]) -> list[Row]:
    """One row a model type.

    Args:
        names: model types.
        done: a JSON-lines file to resume from and to append to.
        ranks: numbers of gloo ranks to prove on.
        tick: called with each new row.
    """
    from modular_converter.parallel.ranks import RankPool

    rows = _read(done)
    known = {row["model"] for row in rows}
    pools = [RankPool(size) for size in ranks]
    try:
        for name in names:
            if name in known:
                continue
            row = _row(name, pools)
            rows.append(row)
            if done is not None:
                with done.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            tick(row)
    finally:
        for pool in pools:
            pool.stop()
    return rows


def _read(done: Path | None) -> list[Row]:
    if done is None or not done.exists():
        return []
    return [json.loads(line) for line in done.read_text(encoding="utf-8").splitlines() if line.strip()]


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise ``PlanError`` in the main thread after so many seconds."""
    import signal

    def stop(*_: object) -> None:
        raise PlanError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _row(name: str, pools: list[Any]) -> Row:
    from modular_converter.parallel.prove import derive_model, prove
    from modular_converter.parallel.report import cost
    from modular_converter.parallel.resolve import resolve
    from modular_converter.parallel.tiny.build import target_of

    start = time.monotonic()
    row: Row = {"model": name, "state": "failed", "reason": "", "share": 0.0, "collectives": 0, "plan": ""}
    try:
        with limited(MODEL_LIMIT_S):
            derived = derive_model(target_of(name))
            row["derive_s"] = round(time.monotonic() - start, 2)
            found = cost(derived.trace, derived.plan, resolve(derived.plan, derived.small.model).pieces, 2)
            row.update(share=round(found.share, 4), collectives=found.collectives, plan=str(derived.plan))
            row["gathered"] = sum(rule.style == "colwise_gather_output" for rule in derived.plan.rules)
            verdicts = [prove(derived, derived.plan, pool) for pool in pools]
            row["committed"] = _committed(derived, pools[0])
        bad = next((verdict for verdict in verdicts if not verdict.passed), None)
        empty = not derived.plan.rules
        row["state"] = "verified" if bad is None and not empty else "empty" if bad is None else "refused"
        row["reason"] = "" if bad is None else f"{bad.layer}: {bad.reason}"
    except Exception as error:  # one model must not stop the table
        row["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    row["seconds"] = round(time.monotonic() - start, 2)
    return row


def _committed(derived: Any, pool: Any) -> Row | None:
    """The plan in the model's own configuration class, measured and proven in the same way; None if it has none."""
    from modular_converter.parallel.emit import from_library
    from modular_converter.parallel.prove import prove
    from modular_converter.parallel.report import cost
    from modular_converter.parallel.resolve import matches, resolve

    rules = getattr(derived.small.model.config, "base_model_tp_plan", None)
    if not rules:
        return None
    model = derived.small.model
    names = [path for path, _ in model.named_modules()] + [name for name, _ in model.named_parameters()]
    rules = {key: style for key, style in rules.items() if matches(key, names)}  # keys of layers this one has none of
    try:
        plan = from_library(derived.target.name, rules)
        pieces = resolve(plan, derived.small.model).pieces
        found = cost(derived.trace, plan, pieces, 2)
        verdict = prove(derived, plan, pool)
    except PlanError as error:
        return {"state": "not comparable", "reason": str(error)[:200]}
    state = "verified" if verdict.passed else "refused"
    return {"state": state, "reason": verdict.reason, "share": round(found.share, 4), "collectives": found.collectives}


def markdown(rows: list[Row], versions: str, date: str) -> str:
    """The coverage as a Markdown table."""
    proven = sum(row["state"] == "verified" for row in rows)
    lines = [f"{proven} of {len(rows)} model types verified ({versions}, {date}).", ""]
    lines += [
        "| model | state | layer bytes sharded | collectives | gathered rules | committed plan |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: str(r["model"])):
        own = row.get("committed")
        beside = (
            "" if not own else own["state"] + (f", {own['share']:.0%}, {own['collectives']}" if "share" in own else "")
        )
        state = (
            row["state"] if row["state"] == "verified" else f"{row['state']}: {row['reason'][:90]}".replace("|", "/")
        )
        cells = (row["model"], state, f"{row['share']:.0%}", row["collectives"], row.get("gathered", ""), beside)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"
