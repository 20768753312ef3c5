"""A comparison of schedules on a terminal: a coloured timeline, tables, and advice."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from modular_converter.parallel.schedule.actions import Work
from modular_converter.parallel.schedule.draw_text import text_legend, text_rows
from modular_converter.parallel.schedule.forecast import Forecast, ScheduleComparison
from modular_converter.parallel.schedule.measured import MeasuredStep, measured_lines, measured_table
from modular_converter.parallel.schedule.report import rank_table, schedule_table, summary_line, time_text, title_of


if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
_COLORS = {
    Work.FORWARD: "black on bright_blue",
    Work.BACKWARD: "black on yellow",
    Work.INPUT_BACKWARD: "black on yellow",
    Work.WEIGHT_BACKWARD: "black on green",
}


def print_comparison(found: ScheduleComparison, unit: str, notes: list[str], said: list[str], balance: str) -> None:
    """Print all figures of a comparison.

    Args:
        unit: of the times.
        notes: lines about the origin of the costs.
        said: the advice.
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
    _table(console, *rank_table(chosen, unit))
    for name, one in ((balance, chosen), ("best balance that was found", best)):
        layers = ",".join(map(str, one.balance))
        console.print(f"{name} {layers}: step {time_text(one.timeline.step, unit)}")
    console.print("\nwith layers balanced, on the same ranks:")
    _table(console, *schedule_table(found, unit))
    for sentence in said:
        console.print(f"- {sentence}")


def print_measured(chosen: Forecast, step: MeasuredStep) -> None:
    """Print a measured step beside its forecast."""
    console = _console()
    line = step.timeline(chosen.timeline)
    console.print("\nmeasured:", style="bold")
    _grid(console, replace(chosen, timeline=line))
    console.print()
    _table(console, *measured_table(chosen, step))
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


def _table(console: Console, head: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in head:
        grid.add_column(title, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console.print(grid)
