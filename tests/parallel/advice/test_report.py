"""Advice as text, table, plain values and page, from figures that are given."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from modular_converter.parallel.advice import report
from modular_converter.parallel.advice.candidates import Advice, LayoutForecast, Question
from modular_converter.parallel.advice.devices import GIB, Cluster, cluster_of
from modular_converter.parallel.advice.memory import OF_OPTIMIZER, Footprint, LayoutSetting, Moment
from modular_converter.parallel.advice.step_time import StepTime
from modular_converter.parallel.layout import Layout


DEVICE = replace(cluster_of("H100-80GB").device, name="D<1>", memory_gib=10.0)
PEAK = Moment("a backward", GIB, 2.0 * GIB, 0.5 * GIB)
MEMORY = Footprint(
    weights=3 * GIB,
    gradients=4 * GIB,
    optimizer=1.5 * GIB,
    buffers=2.0**20,
    peak=PEAK,
    caches=0.0,
    workspace=0.25 * GIB,
    outside=0.125 * GIB,
    spare=2.0**26,
    replicated=(("big", 2e9), ("at the bound", 1e6), ("small", 9e5)),
)
TIME = StepTime(compute=1.0, exchange=0.5, bubble=0.25, update=0.25)


def forecast(layout: str, memory: Any = MEMORY, time: Any = TIME, why: str = "", **options: Any) -> LayoutForecast:
    return LayoutForecast(LayoutSetting(Layout.parse(layout), **{"rows": 4, **options}), memory, time, why)


def advice(
    *candidates: LayoutForecast, nodes: int = 1, each: int = 4, length: int = 64, optimizer: str = "adamw"
) -> Advice:
    question = Question(Cluster(nodes, each, DEVICE), 8, optimizer, tokens=0)
    return Advice(question, "Model", 1_234_000_000, length, candidates)


def test_sizes_have_a_unit_that_fits() -> None:
    assert [report.gib(size) for size in (GIB / 10, GIB / 10 - 2**18, 3 * GIB)] == [
        "0.10 GiB",
        "102.2 MiB",
        "3.00 GiB",
    ]


def test_the_rows_of_memory() -> None:
    head, rows = report.memory_table(MEMORY, DEVICE)
    assert [head, *rows] == [
        ["a device", "", ""],
        ["weights", "3.00 GiB", "exact"],
        ["optimizer", "1.50 GiB", "exact, between steps"],
        ["buffers", "1.0 MiB", "exact"],
        ["gradients", "1.00 GiB", "at the peak; all together 4.00 GiB"],
        ["activations", "2.00 GiB", "at the peak"],
        ["gathered weights", "0.50 GiB", "at the peak"],
        ["workspaces", "0.25 GiB", "of libraries"],
        ["allocated", "8.25 GiB", "the peak: a backward"],
        ["contexts", "0.12 GiB", "of the driver, and buffers of collectives"],
        ["spare", "64.0 MiB", "that an allocator cannot use"],
        ["all", "8.44 GiB", "of 10.00 GiB of D<1>"],
    ]
    with_caches = report.memory_table(replace(MEMORY, caches=GIB), DEVICE)[1]
    assert with_caches[4] == ["activations", "2.00 GiB", "at the peak; caches 1.00 GiB"]


def test_large_weights_that_are_whole_on_each_rank_are_named() -> None:
    assert report.replicated_lines(MEMORY, 2) == [
        "whole on each of 2 ranks, 1.86 GiB in all: big (1.86 GiB), at the bound (1.0 MiB)"
    ]
    assert report.replicated_lines(replace(MEMORY, replicated=(("small", 9e5),)), 2) == []
    for count, more in ((5, ""), (6, ", and 1 more"), (8, ", and 3 more")):
        (line,) = report.replicated_lines(replace(MEMORY, replicated=(("w", 2.0**20),) * count), 4)
        assert line.endswith(f": {', '.join(['w (1.0 MiB)'] * 5)}{more}")


def test_memory_as_plain_values() -> None:
    setting = LayoutSetting(Layout.parse("fsdp2"), 4, recompute=True)
    assert report.memory_value(replace(MEMORY, caches=0.6), setting) == {
        "layout": "fsdp2",
        "options": "recompute=True",
        "weights": 3 * 2**30,
        "gradients": 4 * 2**30,
        "optimizer": 3 * 2**29,
        "buffers": 2**20,
        "at_peak": {"moment": "a backward", "gradients": 2**30, "activations": 2**31, "gathered_weights": 2**29},
        "caches": 1,
        "workspaces": 2**28,
        "allocated": 8 * 2**30 + 2**28 + 2**20,
        "contexts": 2**27,
        "spare": 2**26,
        "total": 8 * 2**30 + 2**28 + 2**20 + 2**27 + 2**26,
        "replicated": [
            {"name": "big", "bytes": 2 * 10**9},
            {"name": "at the bound", "bytes": 10**6},
            {"name": "small", "bytes": 900_000},
        ],
    }


RUNS = [
    forecast("fsdp2", accumulate=2, sync_each_batch=True, recompute=True),
    forecast("tp2", why="slower"),
    forecast("ddp2", why="slower, too"),
]
REST = [forecast("pp2", why="needs 30 GiB", chunks=4), forecast("tp4", None, None, "no heads"), forecast("ep2", None, None, "no experts")]  # fmt: skip


def test_candidates_that_run_come_before_those_that_do_not() -> None:
    head, rows = report.advice_table(advice(*REST, *RUNS), 2)
    assert head == ["layout", "options", "memory", "a step", "tokens/s", "why"]
    assert rows == [
        ["fsdp2", "recompute=True, 2 forwards, sync_each_batch", "8.44 GiB", "2 s (1.2 to 2.8)", "256", "the fastest that fits"],
        ["tp2", "", "8.44 GiB", "2 s (1.2 to 2.8)", "128", "slower"],
        ["pp2", 'chunks=4, schedule="1F1B"', "8.44 GiB", "2 s (1.2 to 2.8)", "128", "needs 30 GiB"],
        ["tp4", "", "", "", "", "no heads"],
        ["…", "2 more with --format json", "", "", "", ""],
    ]  # fmt: skip
    assert len(report.advice_table(advice(*REST, *RUNS), 3)[1]) == 6
    assert report.advice_table(advice(*REST[:2], *RUNS), 2)[1][-1][1].startswith("1 more")


@pytest.mark.parametrize(
    ("tokens", "update", "said"), [(0, 0.0, "a step"), (5, 0.0, "an answer"), (5, 0.5, "a step"), (0, 0.5, "a step")]
)
def test_a_table_is_of_steps_or_of_answers(tokens: int, update: float, said: str) -> None:
    found = advice(REST[1], forecast("tp2", time=replace(TIME, update=update)))
    found = replace(found, question=replace(found.question, tokens=tokens))
    assert report.advice_table(found, 9)[0][3] == said


def test_tokens_a_second_are_those_of_all_devices() -> None:
    answers = forecast("tp2", tokens=100)
    assert report.tokens_a_second(answers, advice(answers, nodes=2)) == 4 * 100 * 4 / 2
    assert report.tokens_a_second(RUNS[0], advice(RUNS[0], length=0)) == 4 * 2 * 1 / 2


def test_the_recommendation_in_a_sentence() -> None:
    took = "for Model (1.23 billion parameters) on 4xD<1>: 8.44 GiB of 10.00 GiB a device,"
    assert report.recommendation(advice(*RUNS)) == (
        f"Take fsdp2 (recompute, 2 forwards, sync_each_batch) {took} a step in 1.2 to 2.8 s."
    )
    assert f"{took} an answer in" in report.recommendation(advice(forecast("tp2", tokens=9)))
    assert report.recommendation(advice(REST[1], REST[0])) == (
        "No layout of Model fits on 4xD<1>: the nearest, pp2 (chunks=4, schedule=1F1B), needs 30 GiB."
    )
    assert report.recommendation(advice(*REST[1:])) == "No layout of Model fits on 4xD<1>: no heads."
    large = replace(REST[0], memory=replace(MEMORY, peak=PEAK._replace(name=OF_OPTIMIZER)))
    fused = " in the optimizer's step: --train adamw-fused makes it without tensors in passing."
    assert report.recommendation(advice(large)).endswith(f"needs 30 GiB{fused}")
    assert report.recommendation(advice(large, optimizer="sgd")).endswith("needs 30 GiB.")


@pytest.mark.parametrize(
    ("best", "nodes", "line"),
    [
        (REST[0], 1, ""),
        (forecast("tp4", tokens=9), 2, 'parallelize("m", num_gpus=4)'),
        (forecast("tp4.pp2", tokens=9), 3, 'torchrun --nnodes 2 --nproc-per-node 4 main.py  # with parallelize("m", inference=True)'),
        (RUNS[0], 3, 'torchrun --nnodes 3 --nproc-per-node 4 train.py  # with parallelize(model, layout="fsdp2", training=Training(recompute=True)), and 2 forwards a step, each with its sums of gradients'),
        (forecast("tp2"), 1, 'torchrun --nnodes 1 --nproc-per-node 4 train.py  # with parallelize(model, layout="tp2")'),
    ],
)  # fmt: skip
def test_the_line_that_runs_it(best: LayoutForecast, nodes: int, line: str) -> None:
    assert report.line_to_run(advice(best, nodes=nodes), "m") == line


def test_advice_as_plain_values() -> None:
    found = advice(RUNS[0], REST[1])
    value = report.advice_value(found, "m")
    first, second = value.pop("candidates")
    assert value == {
        "model": "Model",
        "parameters": 1_234_000_000,
        "devices": "4xD<1>",
        "recommended": report.recommendation(found),
        "line": report.line_to_run(found, "m"),
    }
    assert first == {
        "layout": "fsdp2",
        "options": "recompute=True",
        "forwards": 2,
        "sync_each_batch": True,
        "rows": 4,
        "runs": True,
        "why_not": "",
        "memory": report.memory_value(MEMORY, RUNS[0].setting),
        "seconds": {"all": 2.0, "low": 1.2, "high": 2.8, **vars(TIME)},
        "tokens_a_second": 256.0,
    }
    assert second["why_not"] == "no heads" and not second["runs"]
    assert second["memory"] is second["seconds"] is second["tokens_a_second"] is None


def test_a_table_as_lines_of_text() -> None:
    assert report.plain_table((["a", "b", "c"], [["123", "", "1"], ["", "12", ""]])) == [
        "a    b   c",
        "123      1",
        "     12",
    ]


def test_pictures_have_the_sixteen_first_of_both_kinds() -> None:
    many = [replace(RUNS[1], why_not=f"slower {one}") for one in range(20)]
    rest = [replace(REST[0], why_not=f"needs {one}") for one in range(20)]
    assert report._shown([*rest, *many]) == [*many[:16], *rest[:16]]


def test_pictures_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(report, "bar_picture", lambda *given: drawn.append(given) or "PICTURE")
    monkeypatch.setattr(report, "svg", lambda *given: "|".join(map(str, given[1:])))
    staged = forecast("pp2", why="slower", chunks=2)
    timeline: Any = SimpleNamespace(step=1.5, bubble=0.25)
    page = report.advice_page(advice(RUNS[0], REST[0], REST[1], staged), "m", timeline)
    (memory, parts, unit, limit), (time, kinds, milliseconds) = drawn
    assert [bar.label for bar in memory] == ["fsdp2 (recompute, 2 forwards, sync_each_batch)", "pp2 (chunks=2, 1F1B)", "pp2 (chunks=4, 1F1B)"]  # fmt: skip
    assert sum(memory[0].parts) * GIB == MEMORY.total
    assert memory[0].parts == (3 + 2**-10, 1.5, 1.0, 2.0, 0.5, 0.25 + 0.125 + 0.0625) and memory[0].text == "8.44 GiB"
    assert (parts, unit, limit) == (report.MEMORY_PARTS, "GiB", 10.0)
    assert [bar.parts for bar in time] == [(125.0, 62.5, 31.25, 31.25), (250.0, 125.0, 62.5, 62.5)]
    assert (time[0].text, kinds, milliseconds) == ("2 s", report.TIME_PARTS, "ms")
    assert "<h2>Memory of a device at the peak: the line is what a D&lt;1&gt; has</h2>\nPICTURE" in page
    assert "<h2>Time for a row, and of a step</h2>\nPICTURE" in page
    assert "<h2>The schedule of the fastest layout in stages</h2>\npp2" in page
    assert "pp2 (chunks=2, schedule=1F1B)|1.5 s without the update, 25.0% of it idle" in page
    assert f"<pre><code>{report.escape(report.line_to_run(advice(RUNS[0]), 'm'))}</code></pre>" in page
    assert "Time for a row, and of an answer" in report.advice_page(advice(forecast("tp2", tokens=9)), "m", timeline)
    assert "The schedule of" not in report.advice_page(advice(RUNS[0], REST[0]), "m", timeline)
    assert "The schedule of" not in report.advice_page(advice(staged), "m")
    assert not re.search("<pre>|PICTURE", report.advice_page(advice(*REST[1:]), "m"))


def test_the_places_of_a_picture() -> None:
    bars = [report.StackedBar("x" * 48, (1.0, 2.0), "<3>"), report.StackedBar("y" * 49, (2.0, 0.5), "2")]
    lines = report.bar_picture(bars, ("first", "second part"), "GiB", 5.5).splitlines()
    assert lines == [
        '<svg class="chart" viewBox="0 0 960 78" role="img">',
        '<rect class="c0" x="8" y="4" width="12" height="12"/>',
        '<text x="25" y="14">first</text>',
        '<rect class="c1" x="77" y="4" width="12" height="12"/>',
        '<text x="94" y="14">second part</text>',
        f'<rect class="c0" x="330.00" y="30" width="100.00" height="18"><title>{"x" * 48}: first 1 GiB</title></rect>',
        f'<rect class="c1" x="430.00" y="30" width="200.00" height="18"><title>{"x" * 48}: second part 2 GiB</title></rect>',
        f'<rect class="c0" x="330.00" y="54" width="200.00" height="18"><title>{"y" * 49}: first 2 GiB</title></rect>',
        f'<rect class="c1" x="530.00" y="54" width="50.00" height="18"><title>{"y" * 49}: second part 0.5 GiB</title></rect>',
        '<path class="limit" d="M880.00 26 V78" stroke-width="2" fill="none"/>',
        f'<text x="322" y="43" text-anchor="end">{"x" * 48}</text>',
        '<text x="636.00" y="43">&lt;3&gt;</text>',
        f'<text x="322" y="67" text-anchor="end">{"y" * 47}…</text>',
        '<text x="586.00" y="67">2</text>',
        "</svg>",
    ]
    empty = report.bar_picture([report.StackedBar("a", (0.0,), "0")], ("x",), "s")
    assert "limit" not in empty and 'width="0.00"' in empty


def test_names_are_escaped_and_what_does_not_run_is_shown() -> None:
    found = advice(REST[0])
    cluster = replace(found.question.cluster, device=replace(DEVICE, name="<b>&"))
    page = report.advice_page(
        replace(found, question=replace(found.question, cluster=cluster), model="<i>"), "<script>"
    )
    assert not re.search("<b>|<i>|<script>", page) and "<h1>&lt;i&gt; on 4x&lt;b&gt;&amp;</h1>" in page
    assert "needs 30 GiB" in page and "Time for a row" not in page
    (model,) = re.findall("parallelize.*", report.advice_page(advice(forecast("tp2", tokens=9)), "<script>"))
    assert "&lt;script&gt;" in model


def test_a_page_has_all_layouts_in_a_table() -> None:
    (table,) = re.findall("<h2>All layouts</h2>\n<div class=.wide.>\n<table>\n(.*)\n</table>\n</div>", report.advice_page(advice(*REST[1:]), "m"), re.DOTALL)  # fmt: skip
    assert table.splitlines() == [
        "<tr>" + "".join(f'<th scope="col">{name}</th>' for name in report.advice_table(advice(), 1)[0]) + "</tr>",
        "<tr><td>tp4</td><td></td><td></td><td></td><td></td><td>no heads</td></tr>",
        "<tr><td>ep2</td><td></td><td></td><td></td><td></td><td>no experts</td></tr>",
    ]  # fmt: skip
