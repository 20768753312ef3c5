"""Pictures of timelines: columns of text and boxes of SVG stand where the simulation puts them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from modular_converter.parallel.schedule.draw import svg, text_legend, text_rows
from modular_converter.parallel.schedule.forecast import PipelineSetting, Timeline, forecast
from modular_converter.parallel.schedule.orders import SCHEDULES
from modular_converter.parallel.schedule.stage_costs import even_costs


def line_of(name: str, ranks: int = 2, chunks: int = 4, layers: int = 4) -> Timeline:
    return forecast(PipelineSetting(name, ranks, SCHEDULES[name].usual, chunks), even_costs(layers)).timeline


def rows_of(timeline: Timeline, width: int = 200) -> list[str]:
    return ["".join(piece.text for piece in row) for row in text_rows(timeline, width)]


def test_rows_of_gpipe():
    assert rows_of(line_of("GPipe", 2, 2, 2)) == [
        "F0-F1-.........B0----B1----",
        "...F0-F1-B0----B1----......",
    ]


def test_later_stages_in_lower_case():
    timeline = line_of("ZBVZeroBubble", 2, 2)
    assert [re.sub("[-.0-9]", "", row) for row in rows_of(timeline)] == ["FFfiwfiwIWIW", "FfFfiwIWiwIW"]
    assert "lower case" in text_legend(timeline)
    assert "lower case" not in text_legend(line_of("GPipe"))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("width", [300, 80, 20])
def test_rows_fit_and_have_one_length(name, width):
    rows = rows_of(line_of(name, 4, 12, 8), width)
    assert len({len(row) for row in rows}) == 1
    assert len(rows[0]) <= width


def test_a_number_without_room_is_left_out_not_cut():
    timeline = line_of("1F1B", 2, 12, 2)
    for row, of_rank in zip(rows_of(timeline, 80), timeline.ranks):
        shown = re.findall(r"[FB]\d+", row)
        assert re.search("FF|BB", row)
        rest = iter([f"{timed.action.work.value}{timed.action.chunk}" for timed in of_rank])
        assert all(label in rest for label in shown), "the labels are some of the actions, in order"
        assert len(shown) > len(of_rank) / 2


def boxes(text: str) -> list[tuple[str, float, float, float]]:
    """Class, left, top, width of the boxes that have a title."""
    space = "{http://www.w3.org/2000/svg}"
    found = ElementTree.fromstring(text).iter(f"{space}rect")
    return [
        (box.get("class", ""), *(float(box.get(key, "0")) for key in ("x", "y", "width")))
        for box in found
        if box.find(f"{space}title") is not None
    ]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_action_has_its_box(name):
    timeline = line_of(name)
    found = boxes(svg(timeline, "a", "b"))
    actions = [timed for rank in timeline.ranks for timed in rank]
    assert len(found) == len(actions)
    scale = sum(box[3] for box in found) / sum(timed.end - timed.start for timed in actions)
    left = min(box[1] for box in found)
    for box, timed in zip(found, actions):
        assert box[1] - left == pytest.approx(timed.start * scale, abs=0.05)
        assert box[3] == pytest.approx((timed.end - timed.start) * scale, abs=0.05)


def test_text_is_escaped_and_bytes_are_the_same():
    timeline = line_of("1F1B")
    text = svg(timeline, "<script>&", 'a "b" ]]>')
    assert text == svg(timeline, "<script>&", 'a "b" ]]>')
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title").text == "<script>&"
    assert "<script>" not in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"http(?!://www\.w3\.org/2000/svg)", text)
