"""``modular-plan memory`` and ``modular-plan advise``: which layout of a model fits, how fast it is, why others lose."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from modular_converter.parallel.commands.common import (
    overrides_of,
    quiet_library,
    refuse_without_effect,
    reports_errors,
    set_option,
    write_text,
)
from modular_converter.parallel.commands.kept_output import Output, kept_output
from modular_converter.parallel.errors import AdviceError


if TYPE_CHECKING:
    from modular_converter.parallel.advice.candidates import Advice, Question
    from modular_converter.parallel.advice.devices import Cluster
    from modular_converter.parallel.advice.memory import LayoutSetting
    from modular_converter.parallel.advice.subject import ModelInQuestion

COUNT = click.IntRange(1)
TYPES = click.Choice(["bfloat16", "float16", "float32"])


_OF_TRAINING = ("optimizer", "recompute", "keep_gathered", "accumulate", "sync_each_batch")


def _refuse_mixed_questions(infer: bool) -> None:
    """Raise ``click.UsageError`` for options of training beside ``--infer``, and for those of answers without it."""
    if infer:
        refuse_without_effect(
            _OF_TRAINING, "this is about training, and --infer asks for answers: leave one of them out"
        )
    else:
        refuse_without_effect(["tokens"], "these are tokens of an answer: give --infer, too, or leave it out")


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """The options of both commands."""
    options = (
        click.option(
            "--batch", type=COUNT, help="Rows of a step over all devices; by default one for each data rank."
        ),
        click.option(
            "--sequence", "--length", "length", type=COUNT, help="Tokens of a row; by default MODEL's, at most 2048."
        ),
        click.option("--infer", is_flag=True, help="Answers instead of training."),
        click.option(
            "--tokens", type=COUNT, default=128, show_default=True, help="With --infer, the tokens of an answer."
        ),
        click.option("--dtype", type=TYPES, default="bfloat16", show_default=True, help="The type of products."),
        click.option("--weights-in", type=TYPES, help="The type of weights and optimizer, if it is another."),
        click.option(
            "--cluster", type=click.Path(path_type=Path), metavar="FILE", help="A table of devices of your own."
        ),
        set_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("memory")
@click.argument("model")
@click.option("--layout", default="tp1", show_default=True, help="Such as fsdp8.tp2.")
@click.option("--optimizer", "--train", default="adamw", show_default=True, help="adamw, adamw-fused, sgd, …")
@click.option("--recompute", is_flag=True, help="Layers keep their inputs alone.")
@click.option("--keep-gathered", is_flag=True, help="With fsdp: Training(reshard=False).")
@click.option("--offload", is_flag=True, help="Weights and optimizer on the host.")
@click.option("--sequence-parallel", is_flag=True, help="With tp: parts of the sequence between the divided regions.")
@click.option("--accumulate", type=COUNT, default=1, show_default=True, help="Forwards of a step.")
@click.option(
    "--sync-each-batch", is_flag=True, help="With --accumulate: data ranks sum up gradients in each forward."
)
@click.option("--chunks", type=COUNT, default=1, show_default=True, help="With pp: micro-batches.")
@click.option("--schedule", default="1F1B", show_default=True, help="With pp.")
@click.option("--devices", default="H100-80GB", show_default=True, help="The device.")
@click.option("--strict", is_flag=True, help="Weights that each rank of tp or ep has whole are an error.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_shared
@reports_errors
def memory_command(model: str, **options: Any) -> None:
    """Say what a device holds of MODEL in a layout: weights, gradients, optimizer, activations, buffers, contexts.

    MODEL is a model type (of the size that its configuration class publishes), a class path, or a folder or file with a
    configuration (config.json). Nothing is loaded: the model runs without data. Bytes of weights and optimizer are exact.

    \b
    Exit code: 0 it fits, 1 it does not (or, with --strict, weights are whole on several ranks), 2 not possible.
    """
    _refuse_mixed_questions(options["infer"])
    _print_and_exit(kept_output(("memory", model, options), lambda: _memory_output(model, options)))


def _print_and_exit(found: Output) -> NoReturn:
    click.echo(found.text, nl=False)
    click.echo(found.errors, nl=False, err=True)
    sys.exit(found.code)


def _memory_output(model: str, options: dict[str, Any]) -> Output:
    from modular_converter.parallel.advice.devices import cluster_of
    from modular_converter.parallel.advice.report import (
        memory_table,
        memory_value,
        plain_table,
        replicated_lines,
    )
    from modular_converter.parallel.advice.stages import footprint

    setting = _setting(options)
    device = cluster_of(options["devices"], options["cluster"]).device
    subject = subject_asked(model, options)
    found = footprint(subject, setting, device)
    whole = replicated_lines(found, setting.layout.shares)
    if options["form"] == "json":
        lines = [json.dumps({"model": model, "device": device.name, **memory_value(found, setting)}, indent=2)]
    else:
        rows = f"{setting.rows} x {subject.request.length or 'its'} tokens"
        kind = type(subject.model).__name__
        head = f"{kind}, {subject.parameters / 1e9:.3g} billion parameters, {setting}, {rows}"
        lines = [head, *plain_table(memory_table(found, device)), *whole]
    refused = f"modular-plan: --strict: {whole[0]}\n" if options["strict"] and whole else ""
    return Output(_text(lines), 1 if refused or found.total > device.memory else 0, refused)


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _setting(options: dict[str, Any]) -> LayoutSetting:
    from modular_converter.parallel.advice.memory import LayoutSetting
    from modular_converter.parallel.layout import Layout
    from modular_converter.parallel.schedule.orders import schedule_named

    layout = Layout.parse(options["layout"])
    batch = options["batch"] or layout.data * options["chunks"] * options["accumulate"]
    if batch % layout.data:
        raise AdviceError(f"--batch {batch} does not divide over the {layout.data} data ranks of {layout}")
    return LayoutSetting(
        layout,
        batch // layout.data,
        options["optimizer"],
        options["recompute"],
        not options["keep_gathered"],
        options["offload"],
        options["chunks"],
        schedule_named(options["schedule"]).name,
        options["weights_in"] or "",
        options["tokens"] if options["infer"] else 0,
        options["sequence_parallel"],
        options["accumulate"],
        options["sync_each_batch"],
    )


def subject_asked(model: str, options: dict[str, Any]) -> ModelInQuestion:
    """The model of the options, without data."""
    from modular_converter.parallel.advice.subject import model_in_question
    from modular_converter.parallel.costs import CountRequest

    quiet_library()
    overrides = overrides_of(options["settings"])
    return model_in_question(
        CountRequest(model, overrides, None, 1, options["length"], not options["infer"], options["dtype"])
    )


@click.command("advise")
@click.argument("model", required=False)
@click.option("--devices", help="Such as 2x8xH100-80GB: two nodes of eight; by default the GPUs of this machine.")
@click.option(
    "--train", "optimizer", default="adamw", show_default=True, help="The optimizer: adamw, sgd, adafactor, …"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="html is a page with pictures: memory and time of each layout, and a schedule.",
)
@click.option(
    "--calibrate",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Measure this machine first, and write it as a table of devices for --cluster.",
)
@click.option(
    "--processes", type=COUNT, help="With --calibrate: devices that measure; by default all GPUs, or 2 of the host."
)
@click.option("--most", type=COUNT, default=10, show_default=True, help="Rows of the table that run, and that do not.")
@_shared
@reports_errors
def advise_command(model: str | None, **options: Any) -> None:
    """Say which layout of MODEL to take on a cluster: memory and time of each, and why the others lose.

    MODEL is as for `modular-plan memory`. All figures are predicted, from a run without data; docs/advise.md compares them
    with measured ones. The last line runs the choice. With --calibrate, the advice is for this machine as measured; without
    MODEL, the file is all.

    \b
    Exit code: 0 a layout fits, 1 none does, 2 not possible.
    """
    if model is None and options["calibrate"] is None:
        raise click.UsageError("name a MODEL, or measure this machine with --calibrate FILE")
    if options["calibrate"] is not None and (options["devices"] or options["cluster"]):
        raise click.UsageError("--calibrate is about this machine: give it without --devices and --cluster")
    if options["calibrate"] is None:
        refuse_without_effect(["processes"], "these measure with --calibrate FILE: give it, too, or leave this out")
    _refuse_mixed_questions(options["infer"])
    if model is None:
        cluster_asked(options)
    elif options["devices"] is None:  # this machine, as it is now
        _print_and_exit(_advice_output(model, options))
    else:
        _print_and_exit(kept_output(("advise", model, options), lambda: _advice_output(model, options)))


def _advice_output(model: str, options: dict[str, Any]) -> Output:
    from modular_converter.parallel.advice.candidates import advise

    question = question_asked(options, cluster_asked(options))
    subject = subject_asked(model, options)
    found = advise(subject, question)
    return Output(_advice_text(found, model, subject, options), 0 if found.best is not None else 1)


def _advice_text(found: Advice, model: str, subject: ModelInQuestion, options: dict[str, Any]) -> str:
    from modular_converter.parallel.advice.report import (
        advice_page,
        advice_table,
        advice_value,
        fastest_in_stages,
        line_to_run,
        plain_table,
        recommendation,
    )
    from modular_converter.parallel.advice.step_time import timeline_of_stages

    if options["form"] == "json":
        return _text([json.dumps(advice_value(found, model), indent=2)])
    if options["form"] == "html":
        staged = fastest_in_stages(found)
        timeline = timeline_of_stages(subject, staged.setting, found.question.cluster) if staged else None
        return advice_page(found, model, timeline)
    table = plain_table(advice_table(found, options["most"]))
    return _text([recommendation(found), "", *table, "", line_to_run(found, model)])


def question_asked(options: dict[str, Any], cluster: Cluster) -> Question:
    """The question of the options of ``modular-plan advise``. Raises ``AdviceError`` for an unknown optimizer."""
    from modular_converter.parallel.advice.candidates import Question
    from modular_converter.parallel.advice.memory import check_optimizer

    check_optimizer(options["optimizer"])
    return Question(
        cluster,
        options["batch"] or cluster.size,
        options["optimizer"],
        options["tokens"] if options["infer"] else 0,
        options["weights_in"] or "",
    )


def cluster_asked(options: dict[str, Any]) -> Cluster:
    """The devices of the options: named, at hand, or measured now."""
    from modular_converter.parallel.advice.devices import cluster_at_hand, cluster_of

    if options["calibrate"] is not None:
        return _calibrated(options["calibrate"], options["processes"])
    if options["devices"]:
        return cluster_of(options["devices"], options["cluster"])
    return cluster_at_hand(options["cluster"])


def _calibrated(path: Path, processes: int | None) -> Cluster:
    """This machine, measured; its entry is written."""
    from modular_converter.parallel.advice.machine import calibrated, entry_text

    if not path.parent.is_dir():
        raise AdviceError(f"{path}: there is no folder {path.parent}")
    cluster, measured = calibrated(processes)
    write_text(str(path), entry_text(cluster.device, measured))
    click.echo(f"{path}: written; take it with --devices {cluster} --cluster {path}", err=True)
    return cluster
