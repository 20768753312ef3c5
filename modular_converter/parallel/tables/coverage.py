"""Derive and prove the plans of many models for a table; a file keeps the rows, so that a later run can continue."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto import configuration_auto

from modular_converter.parallel.errors import PlanError, one_line
from modular_converter.parallel.plans.emit import library_unsaid
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.on_processes import RankPool
from modular_converter.parallel.proof.on_threads import check_on_threads
from modular_converter.parallel.proof.prove import derive_model, prove
from modular_converter.parallel.solve.budget import plan_within
from modular_converter.parallel.solve.cost import cost
from modular_converter.parallel.solve.read_library import from_library
from modular_converter.parallel.tables.class_plans import have_row_here, plan_in_classes, types_in
from modular_converter.parallel.tables.published import holds_at
from modular_converter.parallel.tables.row_file import Row, RowFile
from modular_converter.parallel.tiny.build import target_of, targets_of_folder


MODEL_LIMIT_S = 60
"""The limit for a model type, in seconds of processor time of this process, which other programs do not change."""
_WAITING, _RANKS_WAITING = 10, 4
"""Multiples of the limit in elapsed time, for a type and for a proof on processes: hung ranks take no processor time."""
LIGHT = 0.999
"""Sharded parts of plans are compared up to this factor, so that single biases do not count."""

# The models with handwritten policies in https://github.com/tunib-ai/parallelformers.
CLASSICS = (
    "albert bart bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small camembert clip convbert ctrl"
    " deberta deberta-v2 deit detr distilbert dpr electra flaubert fsmt funnel gpt2 gpt_neo hubert ibert layoutlm led"
    " longformer luke lxmert m2m_100 marian mbart megatron-bert mobilebert mpnet mt5 openai-gpt pegasus prophetnet"
    " folder:rag reformer roberta roformer speech_to_text squeezebert t5 tapas vit visual_bert wav2vec2 xlm xlm-roberta"
    " xlnet"
)


def cover(names: Iterable[str], done: Path | None, ranks: int, tick: Callable[[Row], None]) -> list[Row]:
    """The rows of all models.

    Args:
        names: model types, or ``folder:NAME`` for a model folder of the library, which has a row for each model type.
        done: a JSON-lines file to resume from and to append to; None for no file.
        ranks: the number of gloo processes for the proof; the checks on threads have 2 and 4 ranks.
        tick: called after each name, with its last row.
    """
    file = RowFile(done) if done is not None else None
    rows = list(file.rows) if file is not None else []
    known = {row["name"] for row in rows}
    with _one_thread(), RankPool(ranks, MODEL_LIMIT_S * _RANKS_WAITING) as pool:
        pool.start()
        for name in names:
            if name in known:
                continue
            found = list(_rows(name, pool))
            rows += found
            if file is not None:
                file.append(found)
            tick(found[-1])
    return rows


def folders() -> list[str]:
    """All model folders of the library with a modeling file, sorted."""
    models = Path(configuration_auto.__file__).parents[1]
    return sorted({path.parent.name for path in models.glob("*/modeling_*.py")} - {"auto"})


@contextmanager
def _one_thread() -> Iterator[None]:
    """A context with one thread in each operation: waiting threads would use up a type's processor time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _TimeIsUp(BaseException):
    """Not an ``Exception``, since code that tries whether a model runs would take it for the model's error and go on."""


@contextmanager
def limited(seconds: int, by_the_clock: int | None = None) -> Iterator[None]:
    """A context that raises ``PlanError`` in the main thread after ``seconds`` of this process's processor time.

    Args:
        by_the_clock: the limit for the elapsed time, in seconds; the same as ``seconds`` if None.
    """
    longest = by_the_clock or seconds

    def stop(number: int, _: object) -> None:
        raise _TimeIsUp(f"took more than {longest if number == signal.SIGALRM else seconds} s")

    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.alarm(longest)
        yield
    except _TimeIsUp as error:
        raise PlanError(str(error)) from None
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _rows(name: str, pool: Any) -> Iterator[Row]:
    """The row of a type, or the rows of a folder's types; for a folder without types, of its first class that works."""
    folder = name.removeprefix("folder:") if name.startswith("folder:") else ""
    try:
        targets = targets_of_folder(folder) if folder else [target_of(name)]
    except Exception as error:  # one model must not stop the table
        yield {
            "name": name,
            "folder": folder,
            "model": folder or name,
            "state": "failed",
            "reason": one_line(error, 300),
        }
        return
    typed = len({target.name for target in targets}) == len(targets)
    for number, target in enumerate(targets):
        row = _row(target, pool) | {"name": name, "folder": folder}
        if typed or row["state"] == "verified" or number == len(targets) - 1:
            yield row
        if not typed and row["state"] == "verified":
            return


def _row(target: Any, pool: Any) -> Row:
    start = time.monotonic()
    row: Row = {"model": target.name, "class": target.model_class.rpartition(".")[2], "state": "failed", "reason": ""}
    try:
        with limited(MODEL_LIMIT_S, MODEL_LIMIT_S * _WAITING):
            _fill(row, target, pool, start)
            if row["state"] == "verified":
                row["holds_at"] = _holds_at(target, row["plan"])
    except Exception as error:  # one model must not stop the table
        if row["state"] == "failed":
            row["reason"] = one_line(error, 300)
    row["seconds"] = round(time.monotonic() - start, 2)
    return row


def _holds_at(target: Any, plan: str) -> dict[str, str]:
    """Number of devices -> the reason why the plan fails at published sizes; empty if it holds."""
    return {str(size): reason for size, reason in holds_at(target, Plan.parse(plan)).items()}


def _fill(row: Row, target: Any, pool: Any, start: float) -> None:
    """Derive a plan, prove it on processes, check it on four threads, and compare it with the plan in the source."""
    derived = derive_model(target, uses=True)
    small, plan = derived.small, derived.plan
    row["derive_s"] = round(time.monotonic() - start, 2)
    found = cost(derived.trace, plan, resolve(plan, small.model).pieces, 2)
    begun = time.monotonic()
    verdicts = [prove(derived, plan, pool)]
    row["prove_s"] = round(time.monotonic() - begun, 2)
    verdicts.append(check_on_threads(derived.subject, plan, 4))
    bad = next((verdict for verdict in verdicts if not verdict.passed), None)
    row.update(
        state="empty" if not plan.rules else "verified" if bad is None else "refused",
        reason="" if bad is None else placed(bad.layer, bad.reason),
        share=round(found.share, 4),
        sharded=round(found.sharded, 4),
        collectives=derived.verdict.collectives,
        gathered=sum(rule.style == "colwise_gather_output" for rule in plan.rules),
        unproven=len(derived.verdict.evidence.unproven),
        evidence=verdicts[0].evidence.also(verdicts[1].evidence).to_json(),
        retreat=derived.retreat,
        plan=str(plan),
        loader=_through_loader(derived, pool),
    )
    row["committed"] = _committed(derived, found.sharded, pool)


def _through_loader(derived: Any, pool: Any) -> str:
    """``verified``, the reason against the plan, or the first rule that transformers' vocabulary lacks."""
    unsaid = library_unsaid(derived.plan)
    if unsaid:
        return f"not in its vocabulary: {unsaid[0]}"
    return _said(lambda: prove(derived, derived.plan, pool, "library"))


def _said(run: Callable[[], Any]) -> str:
    """A verdict in words."""
    try:
        verdict = run()
    except PlanError as error:
        return f"refused: {one_line(error, 300)}"
    return "verified" if verdict.passed else f"refused: {verdict.reason}"


def _committed(derived: Any, sharded: float, pool: Any) -> Row | None:
    """The row of the plan in the classes of the model and its parts, run in the same way.

    None if there is no such plan, or it belongs to parts whose types have rows of their own. If the derived plan has more
    collectives, it is replaced by the plan that shards most with the committed plan's number.
    """
    model, trace = derived.small.model, derived.trace
    rules, types = plan_in_classes(model), types_in(model)
    if not have_row_here(types, model):
        return None
    if not rules:
        reason = "its rules name no layer of the small instance"
        return {"state": "not comparable", "reason": reason, "outcome": "", "types": types}
    try:
        source = from_library(derived.target.name, rules, trace)
        theirs = cost(trace, source, resolve(source, model).pieces, 2).sharded
        verdict = prove(derived, source, pool)
    except PlanError as error:
        return {"state": "not comparable", "reason": str(error)[:300], "outcome": "", "types": types}
    row: Row = {"state": "verified" if verdict.passed else "refused", "reason": placed(verdict.layer, verdict.reason)}
    row.update(sharded=round(theirs, 4), collectives=verdict.collectives, outcome="worse", types=types)
    row["loader"] = _said(lambda: prove(derived, source, pool, "committed"))
    if not verdict.passed:
        # The library's loader runs some plans that are refused here, since it reads them differently.
        ours_alone = row["loader"] == "verified"
        return row | {"outcome": "not said by our styles" if ours_alone else "the committed one is refused"}
    if dict.fromkeys(map(str, source.rules)) == dict.fromkeys(map(str, derived.plan.rules)):
        return row | {"outcome": "same"}
    plan, calls = derived.plan, derived.verdict.collectives
    if calls > verdict.collectives:
        plan = plan_within(trace, verdict.collectives)
        again = prove(derived, plan, pool)
        sharded = cost(trace, plan, resolve(plan, model).pieces, 2).sharded if again.passed else 0.0
        calls = again.collectives
    row.update(beside=round(sharded, 4), beside_collectives=calls)
    if calls <= verdict.collectives and sharded >= theirs * LIGHT:
        same = sorted(map(str, plan.rules)) == sorted(map(str, source.rules))
        row["outcome"] = "same" if same else "at least as many bytes, no more collectives"
    return row
