"""``modular-plan tune``: settings that the advice allows are run on this machine, and the best becomes a file."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modular_converter.parallel.commands.advise import COUNT, TYPES, subject_asked
from modular_converter.parallel.commands.common import quiet_library, reports_errors, set_option, write_text
from modular_converter.parallel.errors import AdviceError, MissingLibraryError


if TYPE_CHECKING:
    from modular_converter.parallel.advice.candidates import Question
    from modular_converter.parallel.advice.subject import ModelInQuestion
    from modular_converter.parallel.tuning.chosen import TrialCandidate
    from modular_converter.parallel.tuning.study import LayoutStudy

_UNKNOWN_GPU = "what fits cannot be predicted, so compare layouts with examples/train.py --layout"
_OBJECTIVES = click.Choice(["tokens", "memory", "latency"])


@click.command("tune")
@click.argument("model")
@click.option(
    "--devices", "processes", type=COUNT, help="Devices of this machine; by default all GPUs, or 2 CPU processes."
)
@click.option(
    "--batch", "batches", type=COUNT, multiple=True, help="Rows of a step over all devices; several may be given."
)
@click.option(
    "--sequence", "--length", "length", type=COUNT, help="Tokens of a row; by default MODEL's, at most 2048."
)
@click.option("--train", "optimizer", default="adamw", show_default=True, help="The optimizer.")
@click.option("--dtype", type=TYPES, default="float32", show_default=True, help="The type of weights and products.")
@click.option("--objective", "objectives", type=_OBJECTIVES, multiple=True, default=["tokens"], show_default=True)
@click.option("--trials", type=COUNT, default=20, show_default=True, help="Settings that are run.")
@click.option("--steps", type=COUNT, default=30, show_default=True, help="Of a trial at most; fewer if times agree.")
@click.option("--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds of a trial.")
@click.option("--time-limit", "limit", type=click.FloatRange(0), metavar="SECONDS", help="Of all trials together.")
@click.option("--compile", "compiles", is_flag=True, help="Try compiled layers, too.")
@click.option(
    "--storage", type=click.Path(path_type=Path, dir_okay=False), help="A file of sqlite to go on from after a kill."
)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("best.json"), show_default=True
)
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="A file for an SVG of all settings.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@set_option
@reports_errors
def tune_command(model: str, **options: Any) -> None:
    """Run settings of MODEL on the devices of this machine, and write the best into a file.

    MODEL is as for `modular-plan memory`; its weights are made up. What does not fit, as predicted, is not tried. A trial
    that runs out of memory, hangs or crashes ends, and the study goes on. `parallelize(model, layout="best.json")` and
    `examples/train.py --layout best.json` run the file. With several --objective the best are those that no other setting
    beats in all of them. When the time ends, or the command is interrupted, the file is the best of the trials so far.

    \b
    Exit code: 0 a setting ran, 1 none did, 2 not possible.
    """
    if importlib.util.find_spec("optuna") is None:
        raise AdviceError(str(MissingLibraryError("optuna", "tune")))
    from modular_converter.parallel.tuning.chosen import candidates_of
    from modular_converter.parallel.tuning.study import LayoutStudy, owned_storage

    for path in (options["output"], options["picture"]):
        if path is not None and not path.parent.is_dir():
            raise AdviceError(f"{path}: there is no folder {path.parent}")
    quiet_library()
    subject, question, gpu = _question(model, options)
    batches = sorted(set(options["batches"])) or [question.batch]
    cluster = question.cluster
    asked = " ".join(
        f"{model} {' '.join(options['settings'])} on {cluster.each} x {cluster.device.name}, batch "
        f"{' or '.join(map(str, batches))}, {subject.length} tokens, {options['dtype']}, {options['optimizer']}"
        f"{', compiled or not' if options['compiles'] else ''}".split()
    )
    with owned_storage(options["storage"]) as storage:
        study = LayoutStudy(
            storage,
            lambda: candidates_of(subject, question, batches, options["compiles"]),
            tuple(dict.fromkeys(options["objectives"])),
            asked,
        )
        click.echo(f"{asked}: {len(study.candidates)} settings fit", err=True)
        left = _run(study, subject, question, gpu, options)
        code = _report(study, options, left)
    sys.exit(code)


def _question(model: str, options: dict[str, Any]) -> tuple[ModelInQuestion, Question, bool]:
    import torch

    from modular_converter.parallel.advice.candidates import Question
    from modular_converter.parallel.advice.devices import Cluster, device_at_hand

    gpu, there = torch.cuda.is_available(), torch.cuda.device_count()
    processes = options["processes"] or (there if gpu else 2)
    if gpu and processes > there:
        raise AdviceError(f"--devices {processes}: this machine has {there} GPUs")
    cluster = Cluster(1, processes, device_at_hand(gpu, processes, _UNKNOWN_GPU))
    return (
        subject_asked(model, {**options, "infer": False}),
        Question(cluster, options["batches"][0] if options["batches"] else processes, options["optimizer"], 0),
        gpu,
    )


def _run(study: LayoutStudy, subject: ModelInQuestion, question: Question, gpu: bool, options: dict[str, Any]) -> int:
    """Run the trials, of which nothing in this process is seen by their processes; the number of those that are left."""
    from modular_converter.parallel.tuning.study import TimeEndedError
    from modular_converter.parallel.tuning.trial import HUNG, LayoutTrial, TrialOutcome, model_of_question, run_here

    sent = model_of_question(subject)
    ends = math.inf if options["limit"] is None else time.monotonic() + options["limit"]

    def measure(one: TrialCandidate) -> TrialOutcome:
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeEndedError
        trial = LayoutTrial(sent, one.chosen, "cuda" if gpu else "cpu", options["optimizer"], options["steps"])
        try:
            found = run_here(trial, question.cluster.each, min(options["timeout"], left))
        except KeyboardInterrupt as error:
            raise TimeEndedError from error
        if found.kind == HUNG and left < options["timeout"]:
            raise TimeEndedError
        return found

    with _interrupted_by_a_request_to_end():
        return study.run(options["trials"], measure, lambda line: click.echo(line, err=True))


@contextlib.contextmanager
def _interrupted_by_a_request_to_end() -> Iterator[None]:
    """A context in which SIGTERM, which the limits of other programs send, interrupts as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(study: LayoutStudy, options: dict[str, Any], left: int) -> int:
    from modular_converter.parallel.advice.report import plain_table
    from modular_converter.parallel.tuning.study import front_picture, result_table

    results, front = study.results(), study.front()
    if options["form"] == "json":
        rows = [
            {**c.chosen.values(), "kind": o.kind, "why": o.why, "measured": o.measured, "best": (c, o) in front}
            for c, o in results
        ]
        click.echo(json.dumps({"objectives": study.objectives, "trials": rows, "left": left}, indent=2))
    else:
        for line in plain_table(result_table(results, front)):
            click.echo(line)
    if left:
        again = " (the same command goes on)" if options["storage"] else " (with --storage the same command goes on)"
        click.echo(f"the time ended: {len(results)} trials ran, and {left} are left{again}", err=True)
    if not front:
        click.echo("modular-plan: no setting ran", err=True)
        return 1
    best, outcome = front[0]
    write_text(
        str(options["output"]), json.dumps({**best.chosen.values(), "measured": outcome.measured}, indent=2) + "\n"
    )
    if options["picture"]:
        write_text(str(options["picture"]), front_picture(results, front, study.objectives))
    click.echo(
        f'{options["output"]}: {best.chosen}; run it with parallelize(model, layout="{options["output"]}")', err=True
    )
    return 0
