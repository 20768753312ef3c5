"""``modular-plan schedule``: the predicted step of a pipeline, with a picture, a balance and advice."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from modular_converter.parallel.commands.common import reports_errors, set_option, write_text
from modular_converter.parallel.commands.measure_schedule import MeasuredModel
from modular_converter.parallel.commands.print_schedule import print_comparison, print_measured
from modular_converter.parallel.commands.schedule_costs import WIDTHS, costs_from_options, count_request
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.schedule.advice import advice
from modular_converter.parallel.schedule.draw_svg import svg
from modular_converter.parallel.schedule.forecast import Forecast, PipelineSetting, compare_schedules
from modular_converter.parallel.schedule.measured import MeasuredStep, measured_lines, measured_value
from modular_converter.parallel.schedule.orders import schedule_named
from modular_converter.parallel.schedule.report import summary_line, title_of, to_value


POSITIVE = click.FloatRange(0, min_open=True)
COUNT = click.IntRange(1)


@click.command("schedule")
@click.argument("model", required=False)
@click.option("--ranks", type=COUNT, help="Devices in a pipeline.")
@click.option("--stages", type=COUNT, help="Stages in all, instead of --ranks.")
@click.option("--chunks", required=True, type=click.IntRange(1, 4096), help="Micro-batches of a step.")
@click.option(
    "--schedule", "name", default="1f1b", show_default=True, help="GPipe, 1F1B, interleaved, bfs, zb1p, zbv."
)
@click.option("--stages-per-rank", "per_rank", type=COUNT, help="By default 2, if the schedule takes several.")
@click.option("--balance", metavar="N,N,…", help="Layers of each stage; by default in equal shares.")
@click.option("--inference", is_flag=True, help="Forward passes alone.")
@set_option
@click.option("--layers", type=COUNT, help="Layers of MODEL, instead of its configuration's.")
@click.option(
    "--batch", type=COUNT, help="Rows of a step, over all micro-batches; by default one for each micro-batch."
)
@click.option("--length", type=COUNT, help="Tokens of a row; by default MODEL's positions, at most 2048.")
@click.option("--dtype", type=click.Choice(list(WIDTHS)), default="bfloat16", show_default=True)
@click.option(
    "--tflops", type=POSITIVE, default=400.0, show_default=True, help="Operations that a device reaches, in 10^12/s."
)
@click.option(
    "--bandwidth",
    type=POSITIVE,
    default=100.0,
    show_default=True,
    help="Bandwidth between two ranks, in 10^9 bytes/s.",
)
@click.option(
    "--transfer", type=click.FloatRange(0), help="Seconds of a transfer between two ranks, instead of --bandwidth."
)
@click.option("--no-overlap", is_flag=True, help="A rank that sends does not compute meanwhile.")
@click.option("--bytes-per-parameter", "state", type=POSITIVE, help="Bytes of weight, gradient and optimizer state.")
@click.option("--memory", type=POSITIVE, metavar="GIB", help="Memory of a device; ranks that need more are named.")
@click.option("--layer-times", type=click.Path(), metavar="FILE", help="Measured seconds of layers, as JSON.")
@click.option(
    "--measure",
    is_flag=True,
    help="Time MODEL's layers, run the pipeline, and compare; under torchrun, one process a rank.",
)
@click.option("--even", type=COUNT, metavar="LAYERS", help="No model: equal layers, 1 forward, 2 backward.")
@click.option("--svg", "picture", type=click.Path(), metavar="FILE", help="Write the picture, too.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reports_errors
def predict_schedule(model: str | None, **options: Any) -> None:
    """Predict what a pipeline of MODEL takes: step, bubble and memory of each rank, drawn.

    MODEL is a model type (of the size that its configuration class publishes), a class path, a modeling file, or a
    folder or file with a configuration (config.json); its operations are counted without its weights. Instead of a
    model, --even takes equal layers, and --layer-times takes measured times.

    All figures are predicted, and nothing runs in parallel, unless --measure is given. Bytes are those of weights,
    gradients, optimizer state (two numbers a parameter, as AdamW keeps) and activations, without temporary tensors
    except those of the loss.
    """
    setting = _setting(options)
    balance = _numbers(options["balance"])
    subject = _measured_model(model, setting, options) if options["measure"] else None
    costs, unit, notes = costs_from_options(model, setting, options, subject)
    found = compare_schedules(setting, costs, balance)
    step = None if subject is None else subject.step(found.chosen)
    if subject is not None and not subject.is_first:
        return
    memory = options["memory"]
    said = advice(found, costs, None if memory is None else memory * 2**30)
    if options["picture"]:
        _draw(options["picture"], found.chosen, unit, step)
    if options["form"] == "json":
        more = {} if step is None else {"measured": measured_value(found.chosen, step)}
        click.echo(json.dumps({**to_value(found, unit, notes, said), **more}, indent=2))
    else:
        print_comparison(found, unit, notes, said, "balance as given" if balance else "even balance")
        if step is not None:
            print_measured(found.chosen, step)


def _setting(options: dict[str, Any]) -> PipelineSetting:
    schedule = schedule_named(options["name"])
    each = options["per_rank"] or schedule.usual
    ranks, stages = options["ranks"], options["stages"]
    if (ranks is None) == (stages is None):
        raise PlanError("give --ranks (devices) or --stages (in all), and not both")
    if ranks is None and stages % each:
        raise PlanError(
            f"{schedule.name} with {each} stages a rank does not divide {stages} stages; give --ranks, or --stages "
            f"{max(stages // each, 1) * each} or {(stages // each + 1) * each}"
        )
    trains, overlaps = not options["inference"], not options["no_overlap"]
    return PipelineSetting(schedule.name, ranks or stages // each, each, options["chunks"], trains, overlaps)


def _measured_model(model: str | None, setting: PipelineSetting, options: dict[str, Any]) -> MeasuredModel:
    """The model on this process, for ``--measure``."""
    if model is None or options["layer_times"] is not None or options["transfer"] is not None:
        raise PlanError("--measure needs a MODEL, and takes no --layer-times and no --transfer: it measures them")
    if setting.schedule == "ZBVZeroBubble" and not setting.trains:
        raise PlanError("ZBVZeroBubble has no forward without a backward: leave --inference out, or measure another")
    return MeasuredModel(count_request(model, setting, options), setting)


def _draw(path: str, chosen: Forecast, unit: str, step: MeasuredStep | None) -> None:
    """Write the picture, and beside it the picture of the measured step, if there is one."""
    write_text(path, svg(chosen.timeline, title_of(chosen), summary_line(chosen, unit)))
    if step is not None:
        stem, suffix = os.path.splitext(path)
        line = step.timeline(chosen.timeline)
        write_text(f"{stem}-measured{suffix}", svg(line, title_of(chosen), measured_lines(chosen, step)[0]))


def _numbers(balance: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in balance.split(",")) if balance else ()
    except ValueError as error:
        raise PlanError(f"--balance takes numbers of layers, such as 8,8,8,8, not {balance!r}") from error
