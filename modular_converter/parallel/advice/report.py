"""Memory and advice as text, as JSON, and as one HTML file with pictures, without scripts and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from modular_converter.parallel.advice.candidates import Advice, LayoutForecast
from modular_converter.parallel.advice.devices import GIB, Device
from modular_converter.parallel.advice.memory import OF_OPTIMIZER, OPTIMIZERS, Footprint, LayoutSetting
from modular_converter.parallel.schedule.draw import svg
from modular_converter.parallel.schedule.forecast import Timeline


_LEAST_NAMED = 1e6
"""Bytes from which a weight that is whole on each rank is named."""
_PARTS = ("weights", "gradients", "optimizer", "buffers")
Table = tuple[list[str], list[list[str]]]


def gib(size: float) -> str:
    """A number of bytes in GiB, or MiB if it is small."""
    return f"{size / GIB:.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:.1f} MiB"


def memory_table(found: Footprint, device: Device) -> Table:
    """The rows of a device's memory, in the order in which they add up."""
    peak = found.peak
    rows = [
        ["weights", gib(found.weights), "exact"],
        ["optimizer", gib(found.optimizer), "exact, between steps"],
        ["buffers", gib(found.buffers), "exact"],
        ["gradients", gib(peak.gradients), f"at the peak; all together {gib(found.gradients)}"],
        ["activations", gib(peak.activations), "at the peak" + f"; caches {gib(found.caches)}" * bool(found.caches)],
        ["gathered weights", gib(peak.gathered), "at the peak"],
        ["workspaces", gib(found.workspace), "of libraries"],
        ["allocated", gib(found.allocated), f"the peak: {peak.name}"],
        ["contexts", gib(found.outside), "of the driver, and buffers of collectives"],
        ["spare", gib(found.spare), "that an allocator cannot use"],
        ["all", gib(found.total), f"of {gib(device.memory)} of {device.name}"],
    ]
    return ["a device", "", ""], rows


def replicated_lines(found: Footprint, ranks: int) -> list[str]:
    """A line for the weights that each rank of a layer has whole, if there are large ones."""
    large = [(name, size) for name, size in found.replicated if size >= _LEAST_NAMED]
    if not large:
        return []
    whole = sum(size for _, size in found.replicated)
    names = ", ".join(f"{name} ({gib(size)})" for name, size in large[:5])
    more = f", and {len(large) - 5} more" if len(large) > 5 else ""
    return [f"whole on each of {ranks} ranks, {gib(whole)} in all: {names}{more}"]


def memory_value(found: Footprint, setting: LayoutSetting) -> dict[str, Any]:
    """The memory as plain values, in bytes."""
    return {
        "layout": str(setting.layout),
        "options": setting.options(),
        **{name: round(getattr(found, name)) for name in _PARTS},
        "at_peak": {
            "moment": found.peak.name,
            "gradients": round(found.peak.gradients),
            "activations": round(found.peak.activations),
            "gathered_weights": round(found.peak.gathered),
        },
        "caches": round(found.caches),
        "workspaces": round(found.workspace),
        "allocated": round(found.allocated),
        "contexts": round(found.outside),
        "spare": round(found.spare),
        "total": round(found.total),
        "replicated": [{"name": name, "bytes": round(size)} for name, size in found.replicated],
    }


def advice_table(advice: Advice, most: int) -> Table:
    """The candidates: those that run, then those that do not, and why."""
    trains = not advice.question.tokens or any(one.time and one.time.update for one in advice.candidates)
    head = ["layout", "options", "memory", "a step" if trains else "an answer", "tokens/s", "why"]
    runs = [one for one in advice.candidates if one.runs]
    rest = [one for one in advice.candidates if not one.runs]
    rows = [_row(one, advice) for one in (*runs[:most], *rest[:most])]
    left = len(advice.candidates) - len(rows)
    return head, rows + ([["…", f"{left} more with --format json", "", "", "", ""]] if left > 0 else [])


def _row(one: LayoutForecast, advice: Advice) -> list[str]:
    setting = one.setting
    memory = gib(one.memory.total) if one.memory else ""
    step = rate = ""
    if one.time is not None:
        low, high = one.time.band
        step = f"{one.time.seconds:.3g} s ({low:.3g} to {high:.3g})"
        rate = f"{tokens_a_second(one, advice):.3g}"
    options = ", ".join(filter(None, (setting.options(), setting.forwards() if setting.accumulate > 1 else "")))
    return [str(setting.layout), options, memory, step, rate, one.why_not or "the fastest that fits"]


def tokens_a_second(one: LayoutForecast, advice: Advice) -> float:
    """Tokens of all devices together: that are learned from, or written."""
    assert one.time is not None
    if one.setting.tokens:
        replicas = advice.question.cluster.size // one.setting.layout.size
        return one.setting.rows * one.setting.tokens * replicas / one.time.seconds
    return one.setting.rows * one.setting.layout.data * (advice.length or 1) / one.time.seconds


def recommendation(advice: Advice) -> str:
    """One sentence: what to take, or what is missing."""
    best, cluster = advice.best, advice.question.cluster
    if best is None:
        nearest = next((one for one in advice.candidates if one.memory), None)
        why = f"the nearest, {nearest.setting}, {nearest.why_not}" if nearest else advice.candidates[0].why_not
        fused = f"{advice.question.optimizer}-fused"
        if nearest and nearest.memory and nearest.memory.peak.name == OF_OPTIMIZER and fused in OPTIMIZERS:
            why += f" in the optimizer's step: --train {fused} makes it without tensors in passing"
        return f"No layout of {advice.model} fits on {cluster}: {why}."
    assert best.memory is not None and best.time is not None
    low, high = best.time.band
    kind = "an answer" if best.setting.tokens else "a step"
    return (
        f"Take {best.setting} for {advice.model} ({advice.parameters / 1e9:.3g} billion parameters) on {cluster}: "
        f"{gib(best.memory.total)} of {gib(cluster.device.memory)} a device, {kind} in {low:.3g} to {high:.3g} s."
    )


def line_to_run(advice: Advice, model: str) -> str:
    """The line that runs the choice; empty if nothing fits."""
    best, cluster = advice.best, advice.question.cluster
    if best is None:
        return ""
    setting = best.setting
    if setting.tokens and setting.layout.size <= cluster.each:
        return f'parallelize("{model}", num_gpus={setting.layout.size})'
    nodes = setting.layout.size // cluster.each if setting.tokens else cluster.nodes
    processes = f"torchrun --nnodes {nodes} --nproc-per-node {cluster.each}"
    if setting.tokens:
        return f'{processes} main.py  # with parallelize("{model}", inference=True)'
    options = setting.options()
    training = f", training=Training({options})" if options else ""
    forwards = f", and {setting.accumulate} forwards a step" if setting.accumulate > 1 else ""
    sums = ", each with its sums of gradients" if setting.sync_each_batch else ""
    return f'{processes} train.py  # with parallelize(model, layout="{setting.layout}"{training}){forwards}{sums}'


def advice_value(advice: Advice, model: str) -> dict[str, Any]:
    """The advice as plain values: bytes and seconds."""
    return {
        "model": advice.model,
        "parameters": advice.parameters,
        "devices": str(advice.question.cluster),
        "recommended": recommendation(advice),
        "line": line_to_run(advice, model),
        "candidates": [_candidate_value(one, advice) for one in advice.candidates],
    }


def _candidate_value(one: LayoutForecast, advice: Advice) -> dict[str, Any]:
    time = one.time
    return {
        "layout": str(one.setting.layout),
        "options": one.setting.options(),
        "forwards": one.setting.accumulate,
        "sync_each_batch": one.setting.sync_each_batch,
        "rows": one.setting.rows,
        "runs": one.runs,
        "why_not": one.why_not,
        "memory": memory_value(one.memory, one.setting) if one.memory else None,
        "seconds": None
        if time is None
        else {
            "all": time.seconds,
            "low": time.band[0],
            "high": time.band[1],
            **vars(time),
        },
        "tokens_a_second": None if time is None else tokens_a_second(one, advice),
    }


def plain_table(table: Table) -> list[str]:
    """A table as lines of text with columns of equal width."""
    rows: Sequence[Sequence[str]] = [table[0], *table[1]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


MOST_BARS = 16
"""Layouts of a picture that run, and as many that do not."""
WIDTH, LABEL, VALUE, ROW, GAP = 960.0, 330.0, 80.0, 18.0, 6.0
_STYLE = """
  :root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --line: #8c959f; --limit: #c0262d; }
  @media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --line: #6e7681; --limit: #ff7b72; } }
  body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 15px/1.45 system-ui, sans-serif;
         background: var(--paper); color: var(--ink); }
  h1 { font-size: 1.35rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
  code { font: 13px ui-monospace, monospace; } pre { overflow-x: auto; border: 1px solid var(--line); padding: .6rem; }
  table { border-collapse: collapse; font-size: 13px; } .wide { overflow-x: auto; }
  th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
  .chart text { fill: var(--ink); font: 12px system-ui, sans-serif; paint-order: stroke; stroke: var(--paper);
                stroke-width: 3px; }
  .chart .limit { stroke: var(--limit); }
  .c0 { fill: #4c78a8; } .c1 { fill: #f2a65a; } .c2 { fill: #72b7b2; } .c3 { fill: #b279a2; } .c4 { fill: #93d08f; }
  .c5 { fill: #9aa4b0; } .chart { width: 100%; height: auto; }
"""


class StackedBar(NamedTuple):
    """A bar of a picture: its label, its parts in the picture's unit, and the text behind it."""

    label: str
    parts: tuple[float, ...]
    text: str


def advice_page(advice: Advice, model: str, timeline: Timeline | None = None) -> str:
    """The text of an HTML file: the recommendation, memory and time of each layout, a schedule, the table.

    Args:
        timeline: of a step of the fastest layout in stages that fits.
    """
    title = f"{advice.model} on {advice.question.cluster}"
    pieces = [f"<h1>{escape(title)}</h1>", f"<p>{escape(recommendation(advice))}</p>"]
    if line := line_to_run(advice, model):
        pieces.append(f"<pre><code>{escape(line)}</code></pre>")
    pieces += [*_memory_section(advice), *_time_section(advice), *_schedule_section(advice, timeline)]
    pieces += [
        "<h2>All layouts</h2>",
        '<div class="wide">',
        *_table(advice_table(advice, len(advice.candidates))),
        "</div>",
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    return head + "\n".join(pieces) + "\n</body>\n</html>\n"


MEMORY_PARTS = (
    "weights and buffers",
    "optimizer",
    "gradients",
    "activations",
    "gathered weights",
    "libraries and spare",
)
TIME_PARTS = ("compute", "exchanges that nothing hides", "waiting for other stages", "update")


def _memory_section(advice: Advice) -> Iterator[str]:
    bars = []
    for one in _shown([one for one in advice.candidates if one.memory]):
        found = one.memory
        assert found is not None
        peak = found.peak
        beside = found.workspace + found.outside + found.spare
        sizes = (
            found.weights + found.buffers,
            found.optimizer,
            peak.gradients,
            peak.activations,
            peak.gathered,
            beside,
        )
        bars.append(StackedBar(_name(one), tuple(size / GIB for size in sizes), gib(found.total)))
    device = advice.question.cluster.device
    if bars:
        yield f"<h2>Memory of a device at the peak: the line is what a {escape(device.name)} has</h2>"
        yield bar_picture(bars, MEMORY_PARTS, "GiB", device.memory / GIB)


def _time_section(advice: Advice) -> Iterator[str]:
    """Seconds for each row, because layouts for answers have different numbers of replicas."""
    bars = []
    for one in _shown([one for one in advice.candidates if one.runs]):
        time, rows = one.time, one.setting.rows * one.setting.layout.data
        assert time is not None
        parts = (time.compute, time.exchange, time.bubble, time.update)
        bars.append(StackedBar(_name(one), tuple(1000 * part / rows for part in parts), f"{time.seconds:.3g} s"))
    if bars:
        kind = "an answer" if advice.candidates[0].setting.tokens else "a step"
        yield f"<h2>Time for a row, and of {kind}</h2>"
        yield bar_picture(bars, TIME_PARTS, "ms")


def _schedule_section(advice: Advice, timeline: Timeline | None) -> Iterator[str]:
    staged = fastest_in_stages(advice)
    if staged is not None and timeline is not None:
        caption = f"{timeline.step:.3g} s without the update, {timeline.bubble:.1%} of it idle"
        yield "<h2>The schedule of the fastest layout in stages</h2>"
        yield svg(timeline, str(staged.setting), caption)


def fastest_in_stages(advice: Advice) -> LayoutForecast | None:
    """The fastest layout with stages that fits."""
    return next((one for one in advice.candidates if one.runs and one.setting.layout.pp > 1), None)


def _shown(candidates: Sequence[LayoutForecast]) -> list[LayoutForecast]:
    runs, rest = [one for one in candidates if one.runs], [one for one in candidates if not one.runs]
    return [*runs[:MOST_BARS], *rest[:MOST_BARS]]


def _name(one: LayoutForecast) -> str:
    return str(one.setting).replace("schedule=", "")


def bar_picture(bars: Sequence[StackedBar], parts: Sequence[str], unit: str, limit: float = 0.0) -> str:
    """Stacked bars as an SVG with a legend of their parts; with a line at ``limit``, if it is given."""
    top, height = 30.0, 30.0 + len(bars) * (ROW + GAP)
    longest = max([*(sum(bar.parts) for bar in bars), limit]) or 1.0
    scale = (WIDTH - LABEL - VALUE) / longest
    lines = [f'<svg class="chart" viewBox="0 0 {WIDTH:g} {height:g}" role="img">', *_legend(parts)]
    tops = [top + number * (ROW + GAP) for number in range(len(bars))]
    for bar, place in zip(bars, tops):
        lines += _bar(bar, parts, unit, scale, place)
    if limit:
        line = LABEL + limit * scale
        lines.append(f'<path class="limit" d="M{line:.2f} {top - 4:g} V{height:g}" stroke-width="2" fill="none"/>')
    for bar, place in zip(bars, tops):
        end, label = LABEL + sum(bar.parts) * scale + 6, escape(_short(bar.label))
        lines.append(f'<text x="{LABEL - 8:g}" y="{place + 13:g}" text-anchor="end">{label}</text>')
        lines.append(f'<text x="{end:.2f}" y="{place + 13:g}">{escape(bar.text)}</text>')
    return "\n".join([*lines, "</svg>"])


def _bar(bar: StackedBar, parts: Sequence[str], unit: str, scale: float, top: float) -> Iterator[str]:
    left = LABEL
    for number, (part, size) in enumerate(zip(parts, bar.parts)):
        hint = escape(f"{bar.label}: {part} {size:.3g} {unit}")
        place = f'x="{left:.2f}" y="{top:g}" width="{size * scale:.2f}" height="{ROW:g}"'
        yield f'<rect class="c{number}" {place}><title>{hint}</title></rect>'
        left += size * scale


def _legend(parts: Sequence[str]) -> Iterator[str]:
    left = 8.0
    for number, part in enumerate(parts):
        yield f'<rect class="c{number}" x="{left:g}" y="4" width="12" height="12"/>'
        yield f'<text x="{left + 17:g}" y="14">{escape(part)}</text>'
        left += 36 + 6.6 * len(part)


def _short(label: str) -> str:
    return label if len(label) <= 48 else f"{label[:47]}…"


def _table(table: Table) -> Iterator[str]:
    head, rows = table
    yield "<table>"
    yield "<tr>" + "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</table>"
