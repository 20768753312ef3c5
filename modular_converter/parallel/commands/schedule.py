"""`modular-plan schedule`: the predicted step of a model in stages, printed, drawn and measured."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from modular_converter.parallel.commands.common import (
    overrides_of,
    print_table,
    quiet_library,
    reports_errors,
    set_option,
    write_text,
)
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.schedule.draw import svg, text_legend, text_rows
from modular_converter.parallel.schedule.forecast import (
    Forecast,
    PipelineSetting,
    ScheduleComparison,
    compare_schedules,
)
from modular_converter.parallel.schedule.orders import Work, schedule_named
from modular_converter.parallel.schedule.report import (
    MeasuredStep,
    advice,
    measured_lines,
    measured_table,
    measured_value,
    rank_table,
    schedule_table,
    summary_line,
    time_text,
    title_of,
    to_value,
)
from modular_converter.parallel.schedule.stage_costs import (
    ChainCosts,
    ChainWork,
    even_costs,
    read_layer_times,
    with_times,
)


if TYPE_CHECKING:
    from rich.console import Console

    from modular_converter.parallel.commands.measure_schedule import MeasuredModel
    from modular_converter.parallel.costs import CountRequest

PIPE_WIDTH = 160
_COLORS = {
    Work.FORWARD: "black on bright_blue",
    Work.BACKWARD: "black on yellow",
    Work.INPUT_BACKWARD: "black on yellow",
    Work.WEIGHT_BACKWARD: "black on green",
}


def print_comparison(
    found: ScheduleComparison, unit: str, notes: list[str], sentences: list[str], balance: str
) -> None:
    """Print all figures of a comparison.

    Args:
        unit: of the times.
        notes: lines about the origin of the costs.
        sentences: the advice.
        balance: the name of the chosen balance.
    """
    console = _console()
    chosen, best = found.chosen, found.best
    console.print(title_of(chosen), style="bold")
    for note in notes:
        console.print(note)
    _grid(console, chosen)
    console.print()
    console.print(summary_line(chosen, unit))
    print_table(console, *rank_table(chosen, unit))
    for name, one in ((balance, chosen), ("best balance that was found", best)):
        layers = ",".join(map(str, one.balance))
        console.print(f"{name} {layers}: step {time_text(one.timeline.step, unit)}")
    console.print("\nwith layers balanced, on the same ranks:")
    print_table(console, *schedule_table(found, unit))
    for sentence in sentences:
        console.print(f"- {sentence}")


def print_measured(chosen: Forecast, step: MeasuredStep) -> None:
    """Print a measured step beside its forecast."""
    console = _console()
    line = step.timeline(chosen.timeline)
    console.print("\nmeasured:", style="bold")
    _grid(console, replace(chosen, timeline=line))
    console.print()
    print_table(console, *measured_table(chosen, step))
    for sentence in measured_lines(chosen, step):
        console.print(sentence)


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False, emoji=False)


def _grid(console: Console, chosen: Forecast) -> None:
    from rich.text import Text

    label = len(f"rank {chosen.setting.ranks - 1} ")
    for rank, row in enumerate(text_rows(chosen.timeline, max(console.width - label, 20))):
        line = Text(f"rank {rank}".ljust(label))
        for piece in row:
            line.append(piece.text, _COLORS[piece.work] if piece.work else "dim")
        console.print(line, no_wrap=True, overflow="crop")
    console.print(text_legend(chosen.timeline), style="dim")


WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4}
UNIT_OF_EVEN = "forward passes of a layer"
NUMBERS_TRAINED = 4
"""The numbers of each parameter in training: weight, gradient and two of AdamW, all of the same type."""


def costs_from_options(
    model: str | None, setting: PipelineSetting, options: dict[str, Any], measured: MeasuredModel | None = None
) -> tuple[ChainCosts, str, list[str]]:
    """The costs, the unit of their times, and lines about the origin of the costs.

    Args:
        measured: the model to time; its times replace the times from counted operations.

    Raises ``PlanError`` if no source of costs is given, sources exclude each other, or a source cannot be read.
    """
    even, file, transfer = options["even"], options["layer_times"], options["transfer"]
    if even is not None and (model is not None or file is not None):
        raise PlanError("--even stands for a model: give no MODEL and no --layer-times with it")
    if even is not None:
        costs, notes = even_costs(even), [f"times in {UNIT_OF_EVEN}"]
    elif model is not None:
        from modular_converter.parallel.costs import chain_work

        request = count_request(model, setting, options)
        work = chain_work(request)
        costs, notes = _timed(work, request.samples, setting, options)
        if measured is not None:
            times = measured.times(work.output)
            costs = replace(with_times(costs, times, "--measure"), transfer=times.transfer)
            notes[1:] = [f"times of layers and transfers measured on {measured.device_name}"]
    elif file is not None:
        costs, notes = read_layer_times(file), []
    else:
        raise PlanError("give a MODEL, --layer-times FILE with measured times, or --even LAYERS without any")
    if file is not None:
        costs = costs if model is None else with_times(costs, read_layer_times(file), file)
        notes.append(f"times of {file}")
    if transfer is not None:
        costs = replace(costs, transfer=transfer)
    return costs, "s" if even is None else UNIT_OF_EVEN, notes


def count_request(model: str, setting: PipelineSetting, options: dict[str, Any]) -> CountRequest:
    """The model and micro-batch of the options. Raises ``PlanError`` if the micro-batches do not divide the rows."""
    batch, chunks = options["batch"] or setting.chunks, setting.chunks
    if batch % chunks:
        below = batch // chunks * chunks
        raise PlanError(
            f"a batch of {batch} rows does not divide into {chunks} micro-batches; --batch "
            f"{f'{below} or ' * bool(below)}{below + chunks} does"
        )
    from modular_converter.parallel.costs import CountRequest

    quiet_library()
    overrides = overrides_of(options["settings"])
    return CountRequest(
        model, overrides, options["layers"], batch // chunks, options["length"], setting.trains, options["dtype"]
    )


def _timed(
    work: ChainWork, rows: int, setting: PipelineSetting, options: dict[str, Any]
) -> tuple[ChainCosts, list[str]]:
    width = WIDTHS[options["dtype"]]
    state = options["state"] or width * (NUMBERS_TRAINED if setting.trains else 1)
    notes = [
        f"{work.model}: {work.parameters / 1e9:.3g} billion parameters, {len(work.layers)} layers; "
        f"a forward of a micro-batch ({rows}{f' x {work.length} tokens' * bool(work.length)}) takes "
        f"{work.flops / 1e12:.3g} TFLOP",
        f"assumed: {options['tflops']:g} TFLOP/s, {options['bandwidth']:g} GB/s between ranks, "
        f"{state:g} bytes a parameter",
    ]
    gradient = width if setting.trains and not options["state"] else 0
    return work.costs(options["tflops"], options["bandwidth"], state, gradient), notes


POSITIVE = click.FloatRange(0, min_open=True)
COUNT = click.IntRange(1)


@click.command("schedule")
@click.argument("model", required=False)
@click.option("--ranks", type=COUNT, help="Devices in a pipeline.")
@click.option("--stages", type=COUNT, help="Stages in all, instead of --ranks.")
@click.option("--chunks", required=True, type=click.IntRange(1, 4096), help="Micro-batches of a step.")
@click.option(
    "--schedule",
    "name",
    default="1f1b",
    show_default=True,
    help="GPipe, 1F1B, interleaved, bfs, zb1p, zbv, DualPipeV.",
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
    sentences = advice(found, costs, None if memory is None else memory * 2**30)
    if options["picture"]:
        _draw(options["picture"], found.chosen, unit, step)
    if options["form"] == "json":
        more = {} if step is None else {"measured": measured_value(found.chosen, step)}
        click.echo(json.dumps({**to_value(found, unit, notes, sentences), **more}, indent=2))
    else:
        print_comparison(found, unit, notes, sentences, "balance as given" if balance else "even balance")
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
    if schedule_named(setting.schedule).v_shaped and not setting.trains:
        raise PlanError(
            f"{setting.schedule} has no forward without a backward: leave --inference out, or measure another"
        )
    from modular_converter.parallel.commands.measure_schedule import MeasuredModel

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
