"""Coverage: model types with their derived plans, proofs and memory, as rows in a file and as Markdown; and the plans in classes."""

from __future__ import annotations

import json
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers.models.auto import configuration_auto

from modular_converter.parallel.choice.fit import fit
from modular_converter.parallel.choice.skeleton import skeleton_of
from modular_converter.parallel.errors import PlanError, one_line
from modular_converter.parallel.plans.emit import inexpressible_for_library
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting, resolve
from modular_converter.parallel.plans.text_checks import entries_for, placed
from modular_converter.parallel.proof.on_ranks import RankPool, check_on_threads
from modular_converter.parallel.proof.prove import derive_model, prove
from modular_converter.parallel.solve.cost import cost, plan_within
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.tiny.build import target_of, targets_of_folder
from modular_converter.parallel.tiny.shrink import published
from modular_converter.parallel.tiny.target import Target
from modular_converter.parallel.torch_switches import one_thread


Row = dict[str, Any]


class RowFile:
    """The rows of an earlier run.

    An incomplete last line of a killed run is left out, together with the other rows of its folder, which is run again;
    the next write replaces them.

    Raises ``PlanError`` if the file cannot be read, or a line is not a row; the message names the line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        ends: list[int] = []
        lines = _lines(path)
        end = 0
        for number, line in enumerate(lines, start=1):
            end += len(line)
            if not line.strip():
                continue
            row = _parsed(line)
            if row is _CUT and number == len(lines) and line.startswith(b'{"'):
                last = self.rows[-1]["name"] if self.rows else ""
                while last.startswith("folder:") and self.rows and self.rows[-1]["name"] == last:
                    self.rows.pop()
                    ends.pop()
            elif not isinstance(row, dict) or not isinstance(row.get("name"), str):
                raise PlanError(
                    f"{path}: line {number} is not a row of an earlier run; take it out, or give another file to --resume"
                )
            else:
                self.rows.append(row)
                ends.append(end)
        self._end = ends[-1] if ends else 0

    def append(self, found: Sequence[Row]) -> None:
        """Add rows after the last complete row."""
        text = "".join(json.dumps(row) + "\n" for row in found)
        with self.path.open("ab+") as file:
            file.truncate(self._end)
            file.seek(max(self._end - 1, 0))
            file.write((b"" if file.read(1) in (b"\n", b"") else b"\n") + text.encode())
            self._end = file.tell()
        self.rows += found


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise PlanError(f"{path}: it cannot be read ({error}); give another file to --resume") from error


_CUT = object()


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return _CUT


def plan_in_classes(model: Any) -> dict[str, str]:
    """The plan in the classes of a model and its parts, as transformers gathers it for the model.

    Its own additions are left out: it also cuts embeddings of tokens that no plan names.
    """
    written = {pattern for part in model.modules() for pattern in _written(part)}
    gathered = getattr(model, "tp_plan", None) or {}
    kept = {name: style for name, style in gathered.items() if any(f".{name}".endswith(f".{end}") for end in written)}
    return entries_for(kept, model)


def _written(part: Any) -> dict[str, str]:
    config = getattr(part, "config", None)
    return {**(getattr(type(part), "_tp_plan", None) or {}), **(getattr(config, "base_model_tp_plan", None) or {})}


def types_in(model: Any) -> list[str]:
    """The model types with a plan among a model and its parts, sorted."""
    parts = [part for part in model.modules() if getattr(part, "_tp_plan", None)]
    configs = [part.config for part in parts if getattr(getattr(part, "config", None), "base_model_tp_plan", None)]
    return sorted({config.model_type for config in configs})


def have_row_here(types: Iterable[str], model: Any) -> bool:
    """Whether one of the types is the model's own, or a part's that the library lists no base model for."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return any(name == model.config.model_type or name not in MODEL_MAPPING_NAMES for name in types)


SIZES = (2, 3, 4, 8)
WHOLE = "whole: "


def holds_at(target: Target, plan: Plan) -> dict[int, str]:
    """Number of devices -> the reason why the plan does not hold at published sizes; empty if it holds.

    If only parts of it do not fit, they are whole on each device, and are named after ``WHOLE``.
    Widths, heads, vocabulary and experts are the defaults of the class; layers are few, because they are alike.
    """
    found: dict[int, str] = {}
    try:
        model = published(target)
        plan, skeleton = fitting(plan, model), skeleton_of(model)
    except Exception as error:  # a configuration whose defaults do not fit together
        return dict.fromkeys(SIZES, f"cannot be built: {one_line(error)}")
    for size in SIZES:
        try:
            whole = fit(skeleton, plan, size).whole
        except Exception as error:  # a rule does not fit, or nothing is left to shard
            found[size] = one_line(error)
            continue
        found[size] = f"{WHOLE}{', '.join(whole)}" if whole else ""
    return found


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
    with one_thread(), RankPool(ranks, MODEL_LIMIT_S * _RANKS_WAITING) as pool:
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


class _TimeIsUp(BaseException):
    """Not an ``Exception``, since code that tries whether a model runs would take it for the model's error and go on."""


@contextmanager
def limited(seconds: float, by_the_clock: float | None = None) -> Iterator[None]:
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
        signal.setitimer(signal.ITIMER_REAL, longest)
        yield
    except _TimeIsUp as error:
        raise PlanError(str(error)) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
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
                held = holds_at(target, Plan.parse(row["plan"]))
                row["holds_at"] = {str(size): reason for size, reason in held.items()}
    except Exception as error:  # one model must not stop the table
        if row["state"] == "failed":
            row["reason"] = one_line(error, 300)
    row["seconds"] = round(time.monotonic() - start, 2)
    return row


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
    inexpressible = inexpressible_for_library(derived.plan)
    if inexpressible:
        return f"not in its vocabulary: {inexpressible[0]}"
    return _outcome(lambda: prove(derived, derived.plan, pool, "library"))


def _outcome(run: Callable[[], Any]) -> str:
    """A verdict in words, or the refusal of the run."""
    try:
        return str(run().outcome)
    except PlanError as error:
        return f"refused: {one_line(error, 300)}"


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
    row["loader"] = _outcome(lambda: prove(derived, source, pool, "committed"))
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


SLOW_S = 3
"""A step of more seconds counts as slow."""
_HEAD = (
    "| model | plan | layer weights sharded | all bytes | collectives | gathers | library's loader | holds at published size |",
    "|---|---|---|---|---|---|---|---|",
)


def markdown(rows: list[Row], versions: str, date: str) -> str:
    """The coverage as Markdown: counts, the derived plans, and the plans in the source beside them."""
    parts = [summary(rows, versions, date), "", plan_table(rows)]
    beside = committed_section(rows)
    return "\n".join(parts + (["", beside] if beside else [])) + "\n"


def plan_table(rows: Iterable[Row]) -> str:
    """The derived plans, a line for each row, in alphabetical order."""
    return "\n".join([*_HEAD, *(_line(row) for row in _sorted(rows))])


def summary(rows: list[Row], versions: str, date: str) -> str:
    """The counts of verified plans, and the times of deriving and proving."""
    named = {row["folder"] for row in rows if row["folder"]}
    verified = {row["folder"] for row in rows if row["state"] == "verified"} & named
    counts = [f"{sum(row['state'] == 'verified' for row in rows)} of {len(rows)} model types verified"]
    counts += [f"{len(verified)} of {len(named)} model folders have a verified plan"] if named else []
    took = [_took("deriving", "derive_s", rows), _took("proving on processes", "prove_s", rows)]
    said = [", ".join(counts) + f" ({versions}, {date}).", *took, scope(rows)]
    return " ".join(filter(None, said))


def scope(rows: list[Row]) -> str:
    """The number of verified plans that hold at published sizes, and that were proven in each situation."""
    found = [row["evidence"] for row in rows if row["state"] == "verified" and "evidence" in row]
    counted = Counter(situation for evidence in found for situation in evidence["situations"])
    said = [f"{counted[situation]} with {situation}" for situation in sorted(counted)]
    twice = sum(evidence["draws"] > 1 for evidence in found)
    proven = f"Proven on 2 and 4 ranks, {twice} of {len(found)} with two draws of weights, {', '.join(said)}."
    return _sizes(rows) + (proven if found else "")


def _took(what: str, key: str, rows: list[Row]) -> str:
    """The seconds of a step; the first step includes build and trace of the small instance."""
    times = sorted(row[key] for row in rows if key in row)
    if not times:
        return ""
    slow = sum(time > SLOW_S for time in times)
    return f"{what.capitalize()} took {statistics.median(times):.2f} s in the median, {slow} of {len(times)} more than {SLOW_S} s."


def _sizes(rows: list[Row]) -> str:
    """The number of plans that hold at published sizes, for each number of devices."""
    found = [row["holds_at"] for row in rows if "holds_at" in row]
    counts = [f"{sum(not one[size] for one in found)} on {size} devices" for size in found[0]] if found else []
    return f"At published sizes hold {', '.join(counts)}. " if counts else ""


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row["model"]))


def _line(row: Row) -> str:
    cells = [row["model"], _state(row), "", "", "", "", "", ""]
    if "share" in row:
        shares = f"{row['share']:.0%}", f"{row['sharded']:.0%}"
        cells[2:] = *shares, row["collectives"], row["gathered"], _loader(row), _holds(row)
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def _state(row: Row) -> str:
    notes = [f"after {row['retreat'][:60]}"] if row.get("retreat") else []
    notes += [f"outputs alone for {row['unproven']} weights"] if row.get("unproven") else []
    text = row["state"] if row["state"] in ("verified", "empty") else f"{row['state']}: {row['reason'][:110]}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def _holds(row: Row) -> str:
    """The numbers of devices on which a plan holds, and the first reason against a number."""
    found = row.get("holds_at", {})
    yes = ", ".join(size for size, reason in found.items() if not reason)
    no = next((f"{size}: {reason.rpartition('Error: ')[2][:70]}" for size, reason in found.items() if reason), "")
    return "; ".join(filter(None, (yes, no)))


def _loader(row: Row) -> str:
    text = str(row.get("loader", ""))
    return text if text == "verified" else "its vocabulary lacks it" if text.startswith("not in") else text[:80]


def committed_section(rows: list[Row]) -> str:
    """The table of the plans in the source; empty if no model has one."""
    having = [row for row in rows if row.get("committed")]
    if not having:
        return ""
    outcomes: dict[str, int] = {}
    for row in having:
        name = row["committed"]["outcome"] or row["committed"]["state"]
        outcomes[name] = outcomes.get(name, 0) + 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items(), key=lambda item: -item[1]))
    there = sum(row["committed"].get("loader") == "verified" for row in having)
    lines = [
        f"{len(having)} model types carry a `base_model_tp_plan`, of their own or in their parts: {said}. "
        f"{there} run in transformers' loader.{_silent(having)}",
        "",
    ]
    lines += [
        "| model | committed plan | runs there | all bytes | collectives | derived plan in these collectives | outcome |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in _sorted(having):
        own = row["committed"]
        size = f"{own['sharded']:.0%}" if "sharded" in own else ""
        ours = f"{own['beside']:.0%}, {own['beside_collectives']}" if "beside" in own else ""
        there = "yes" if own.get("loader") == "verified" else own.get("loader", "").removeprefix("refused: ")[:110]
        cells = (
            row["model"],
            ("verified" if own["state"] == "verified" else f"{own['state']}: {own['reason'][:130]}"),
            there,
            size,
            own.get("collectives", ""),
            ours,
            own["outcome"] or own["state"],
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def _silent(having: list[Row]) -> str:
    """The models for which the library's loader gives other numbers without an error."""
    wrong = " loader differ"
    names = [row["model"] for row in _sorted(having) if wrong in row["committed"].get("loader", "")]
    return f" It gives other outputs or gradients, without an error, for {', '.join(names)}." if names else ""
