"""Write the table and the picture of docs/pipeline.md: `python utils/write_pipeline_docs.py`, in a second."""

from __future__ import annotations

from pathlib import Path

from marked_pages import write_part

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.draw import svg
from modular_converter.parallel.schedule.forecast import Forecast, PipelineSetting, forecast
from modular_converter.parallel.schedule.orders import SCHEDULES
from modular_converter.parallel.schedule.report import summary_line, title_of
from modular_converter.parallel.schedule.stage_costs import even_costs


DOCS = Path(__file__).resolve().parent.parent / "docs"
LAYERS = 16
SIZES = [(ranks, chunks) for ranks in (4, 8) for chunks in (8, 16, 32)]


def table() -> str:
    """The bubble of every schedule, and the most micro-batches that a rank holds."""
    lines = ["| schedule | " + " | ".join(f"{ranks} ranks, {chunks} chunks" for ranks, chunks in SIZES) + " |"]
    lines.append("| --- |" + " --- |" * len(SIZES))
    for schedule in SCHEDULES.values():
        cells = [_cell(schedule.name, *size) for size in SIZES]
        lines.append(f"| {schedule.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def predicted(name: str, ranks: int, chunks: int) -> Forecast:
    """A schedule over equal layers."""
    return forecast(PipelineSetting(name, ranks, SCHEDULES[name].usual, chunks), even_costs(LAYERS))


def _cell(name: str, ranks: int, chunks: int) -> str:
    try:
        found = predicted(name, ranks, chunks)
    except ScheduleError:
        return "–"
    held = max(use.held for use in found.timeline.uses) / found.setting.per_rank
    return f"{found.timeline.bubble:.1%} ({held:g})"


def picture() -> str:
    """1F1B on four ranks, as SVG."""
    found = predicted("1F1B", 4, 8)
    return svg(found.timeline, title_of(found), summary_line(found, "forward passes of a layer"))


def main() -> None:
    write_part(DOCS / "pipeline.md", "bubbles", table())
    (DOCS / "pipeline.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
