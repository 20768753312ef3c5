"""``modular-plan schedule``: what a pipeline is expected to take, drawn, with the balance and the advice."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import click

from modular_converter.parallel.commands.common import reports_errors
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.schedule.actions import Work
from modular_converter.parallel.schedule.advice import advice
from modular_converter.parallel.schedule.draw_svg import svg
from modular_converter.parallel.schedule.draw_text import text_legend, text_rows
from modular_converter.parallel.schedule.forecast import (
    Forecast,
    PipelineSetting,
    ScheduleComparison,
    compare_schedules,
)
from modular_converter.parallel.schedule.layer_times import read_layer_times
from modular_converter.parallel.schedule.orders import schedule_named
from modular_converter.parallel.schedule.report import (
    rank_table,
    schedule_table,
    summary_line,
    time_text,
    title_of,
    to_value,
)
from modular_converter.parallel.schedule.stage_costs import ChainCosts, even_costs


PIPE_WIDTH = 160
UNITS = "forward passes of a layer"
_STYLES = {
    Work.FORWARD: "black on bright_blue",
    Work.BACKWARD: "black on yellow",
    Work.INPUT_BACKWARD: "black on yellow",
    Work.WEIGHT_BACKWARD: "black on green",
}


@click.command("schedule")
@click.option("--ranks", type=click.IntRange(1), help="Devices in a pipeline.")
@click.option("--stages", type=click.IntRange(1), help="Stages in all, instead of --ranks.")
@click.option("--chunks", required=True, type=click.IntRange(1, 4096), help="Micro-batches of a step.")
@click.option(
    "--schedule", "name", default="1f1b", show_default=True, help="GPipe, 1F1B, interleaved, bfs, zb1p, zbv."
)
@click.option("--stages-per-rank", "per_rank", type=click.IntRange(1), help="2 where a schedule has several.")
@click.option("--balance", metavar="N,N,…", help="Layers of each stage; evenly if not given.")
@click.option(
    "--even", type=click.IntRange(1), metavar="LAYERS", help="Without a model: equal layers, 1 forward, 2 back."
)
@click.option("--layer-times", type=click.Path(), metavar="FILE", help="Measured seconds of layers, as JSON.")
@click.option("--transfer", type=click.FloatRange(0), help="Seconds of a transfer (with --even: of its units).")
@click.option("--no-overlap", is_flag=True, help="A rank that sends does not compute meanwhile.")
@click.option("--inference", is_flag=True, help="Forward passes alone.")
@click.option("--svg", "svg_path", type=click.Path(), metavar="FILE", help="Write the picture, too.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reports_errors
def predict_schedule(
    ranks: int | None,
    stages: int | None,
    chunks: int,
    name: str,
    per_rank: int | None,
    balance: str | None,
    even: int | None,
    layer_times: str | None,
    transfer: float | None,
    no_overlap: bool,
    inference: bool,
    svg_path: str | None,
    form: str,
) -> None:
    """Predict what a pipeline takes: step, bubble and memory of each rank, drawn.

    A simulation; nothing runs in parallel. Its figures are predicted, not measured.
    """
    setting = _setting(ranks, stages, chunks, name, per_rank, not inference, not no_overlap)
    costs, unit = _costs(even, layer_times)
    if transfer is not None:
        costs = replace(costs, transfer=transfer)
    found = compare_schedules(setting, costs, _numbers(balance))
    said = advice(found, costs)
    if svg_path:
        _write(svg_path, svg(found.chosen.timeline, title_of(found.chosen), summary_line(found.chosen, unit)))
    if form == "json":
        click.echo(json.dumps(to_value(found, unit, said), indent=2))
    else:
        _print(found, unit, said, bool(balance))


def _setting(
    ranks: int | None, stages: int | None, chunks: int, name: str, per_rank: int | None, trains: bool, overlaps: bool
) -> PipelineSetting:
    schedule = schedule_named(name)
    each = per_rank or schedule.usual
    if (ranks is None) == (stages is None):
        raise PlanError("give --ranks (devices) or --stages (in all), and not both")
    if stages is not None and stages % each:
        raise PlanError(
            f"{schedule.name} with {each} stages a rank does not divide {stages} stages; give --ranks, or --stages "
            f"{max(stages // each, 1) * each} or {(stages // each + 1) * each}"
        )
    return PipelineSetting(schedule.name, ranks or (stages or 0) // each, each, chunks, trains, overlaps)


def _costs(even: int | None, layer_times: str | None) -> tuple[ChainCosts, str]:
    """The costs, and the unit of their times."""
    if (even is None) == (layer_times is None):
        raise PlanError("give --even LAYERS or --layer-times FILE, and one of them alone")
    return (even_costs(even), UNITS) if even else (read_layer_times(layer_times or ""), "s")


def _numbers(balance: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in balance.split(",")) if balance else ()
    except ValueError as error:
        raise PlanError(f"--balance takes numbers of layers, such as 8,8,8,8, not {balance!r}") from error


def _write(path: str, text: str) -> None:
    from modular_converter.diagnostics import ConversionError
    from modular_converter.files.atomic_write import write_atomically

    target = os.path.abspath(path)
    try:
        write_atomically(target, text, os.path.dirname(target))
    except ConversionError as error:
        raise PlanError("\n".join(map(str, error.diagnostics))) from error


def _print(found: ScheduleComparison, unit: str, said: list[str], given: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)

    def table(head: list[str], rows: list[list[str]]) -> None:
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in head:
            grid.add_column(title, overflow="fold")
        for row in rows:
            grid.add_row(*row)
        console.print(grid)

    chosen = found.chosen
    console.print(title_of(chosen), style="bold")
    if unit != "s":
        console.print(f"times in {unit}")
    label = len(f"rank {chosen.setting.ranks - 1} ")
    for rank, row in enumerate(text_rows(chosen.timeline, max(console.width - label, 20))):
        line = Text(f"rank {rank}".ljust(label), end="")
        for piece in row:
            line.append(piece.text, _STYLES[piece.work] if piece.work else "dim")
        console.print(line, no_wrap=True, overflow="crop")
    console.print(text_legend(chosen.timeline), style="dim")
    console.print()
    console.print(summary_line(chosen, unit))
    table(*rank_table(chosen, unit))
    for line_of_balance in _balances(found, unit, given):
        console.print(line_of_balance)
    table(*schedule_table(found, unit))
    for sentence in said:
        console.print(f"- {sentence}", markup=False)


def _balances(found: ScheduleComparison, unit: str, given: bool) -> list[str]:
    """The chosen balance and the best, each with its step."""

    def line(name: str, one: Forecast) -> str:
        return f"{name} {','.join(map(str, one.balance))}: step {time_text(one.timeline.step, unit)}"

    lines = [line("balance as given" if given else "even balance", found.chosen)]
    return [*lines, line("best balance that was found", found.best)]
