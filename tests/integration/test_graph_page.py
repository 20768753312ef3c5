"""The page of the graph, tried in a real browser: its contents, its controls, and that nothing overlaps.

Pixels are not compared one by one, since fonts differ between machines. A screenshot must have ink in each region and
the right brightness; everything else is asked of the page itself: boxes, names, curves, contrast.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import discover
from modular_converter.graph import Graph
from modular_converter.graph.build import build_graph
from modular_converter.settings.load import profile_settings
from tests.integration.browser import Page, find_browser, pixels


BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chrome or edge is on the path")

REPOSITORY = Path(__file__).parents[2]
SIZES = [(1280, 800), (320, 640), (1600, 900), (820, 1100), (390, 844)]
OVERFLOWS = """
[document.documentElement, document.getElementById("main"), document.querySelector(".scroll")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.id || one.className || one.tagName)
"""
OVERLAPS = """
((selector) => {
  const boxes = [...document.querySelectorAll(selector)].filter((one) => one.offsetParent)
    .map((one) => [one.textContent, one.getBoundingClientRect()]);
  const found = [];
  for (const [name, a] of boxes) for (const [other, b] of boxes) {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (a !== b && name < other && width > 0.5 && height > 0.5) found.push([name, other]);
  }
  return [boxes.length, found];
})(SELECTOR)
"""


def read(folder: str) -> Graph:
    paths = discover(["all"], folder).paths
    graph, findings = build_graph(paths, folder, Library(profile_settings()))
    assert not findings
    return graph


def ink(page: Page, region: tuple[float, float, float, float]) -> float:
    """The share of pixels in a region (left, top, right, bottom, as shares) that differ from the one on their left."""
    rows = pixels(page.screenshot(0.25))
    left, top, right, bottom = region
    cut = [
        row[int(left * len(row)) : int(right * len(row))]
        for row in rows[int(top * len(rows)) : int(bottom * len(rows))]
    ]
    pairs = [pair for row in cut for pair in itertools.pairwise(row)]
    return sum(left != right for left, right in pairs) / len(pairs)


def brightness(page: Page) -> float:
    colors = [color for row in pixels(page.screenshot(0.1)) for color in row]
    return sum(sum(color) / 3 for color in colors) / len(colors)


def names_of(page: Page, side: str) -> set[str]:
    """The models in the columns of one side of the graph, with all columns opened."""
    while page.evaluate("document.querySelectorAll('.more[aria-expanded=false]').length"):
        page.evaluate("document.querySelector('.more[aria-expanded=false]').click()")
    return set(page.evaluate(f"[...document.querySelectorAll('.column.{side} .card span')].map(e => e.textContent)"))


def overlaps(page: Page, selector: str) -> tuple[int, list[list[str]]]:
    number, found = page.evaluate(OVERLAPS.replace("SELECTOR", json.dumps(selector)))
    return number, found


@pytest.mark.parametrize(
    ("which", "dark"),
    [
        pytest.param(which, dark, id=f"{which}-{'dark' if dark else 'light'}", marks=marks)
        for which, dark, marks in (
            ("small", False, []),
            ("large", True, [pytest.mark.slow]),
            ("small", True, [pytest.mark.slow]),
            ("large", False, [pytest.mark.slow]),
        )
    ],
)
def test_list_and_graph_have_ink_in_the_right_colours(page, request, which, dark):
    graph, path = request.getfixturevalue(which)
    for fragment in ("", f"#model={max(graph.heir_counts, key=lambda name: graph.heir_counts[name])}"):
        page.open(path, fragment, dark=dark)
        assert ink(page, (0, 0.1, 0.25, 0.5)) > 0.02, "the list"
        assert ink(page, (0.26, 0.06, 1, 0.6)) > 0.02, "the graph"
        assert brightness(page) < 70 if dark else brightness(page) > 200


@pytest.mark.parametrize("name", ["llama", "gemma3", "data2vec"])
def test_a_search_shows_ancestors_and_heirs(page, large, name):
    graph, path = large
    page.open(path)
    page.press("/")
    page.type(name)
    assert page.evaluate("document.querySelector('#rows a').textContent") == name
    page.press("Enter")
    assert page.evaluate("location.hash") == f"#model={name}"
    assert page.evaluate("document.querySelector('#focus-title').textContent") == name
    assert page.evaluate("document.title").startswith(name)
    assert names_of(page, "is-ancestor") == set(graph.all_ancestors(name))
    assert names_of(page, "is-heir") == set(graph.all_heirs(name))
    counted = page.evaluate("document.querySelector('.facts .is-heir dd').firstChild.data")
    assert counted == str(graph.heir_counts[name])


def test_the_classes_of_each_parent_are_told(page, large):
    graph, path = large
    page.open(path, "#model=gemma3")
    told = page.evaluate("[...document.querySelectorAll('.classes tr td:first-child code')].map(e => e.textContent)")
    taken = [one.name for edge in graph.parents["gemma3"] for one in (*edge.classes, *edge.things)]
    assert sorted(told) == sorted(taken) and len(told) > 10
    page.click(".details summary")
    page.evaluate("new Promise(done => setTimeout(done))")
    first = page.evaluate("document.querySelector('.details details').textContent")
    assert "Gemma3" in first and page.evaluate("document.querySelectorAll('.details details li').length") > 1


def test_pointing_at_a_card_tells_the_classes(page, large):
    graph, path = large
    page.open(path, "#model=gemma2")
    page.hover('.card[href="#model=gemma"]')
    assert page.evaluate("document.getElementById('tip').hidden") is False
    tip = page.evaluate("document.getElementById('tip').textContent")
    assert "gemma2 inherits from gemma" in tip and "modeling_gemma.py" in tip
    assert "Gemma2RotaryEmbedding ← GemmaRotaryEmbedding" in tip
    page.hover("#focus-title")
    assert page.evaluate("document.getElementById('tip').hidden") is True


def test_the_overview_draws_the_curves_of_one_model_only(page, large):
    graph, path = large
    page.open(path)
    curves = "document.querySelectorAll('.bands .curves path').length"
    assert page.evaluate(curves) == 0
    page.hover('.chip[href="#model=mistral"]')
    assert page.evaluate(curves) == len(graph.parents["mistral"]) + len(graph.heirs["mistral"])
    lit = page.evaluate("[...document.querySelectorAll('.chip.is-heir')].map(e => e.textContent)")
    assert set(lit) == set(graph.all_heirs("mistral"))
    page.hover("#overview-title")
    assert page.evaluate(curves) == 0


@pytest.mark.parametrize("which", [pytest.param("small", marks=pytest.mark.slow), "large"])
@pytest.mark.parametrize(
    "size",
    [*SIZES[:2], *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES[2:])],
    ids=lambda size: f"{size[0]}x{size[1]}",
)
def test_nothing_overflows_and_no_names_overlap(page, request, which, size):
    graph, path = request.getfixturevalue(which)
    page.open(path, width=size[0], height=size[1])
    assert page.evaluate(OVERFLOWS) == []
    assert overlaps(page, ".chip") == (len(graph.models), [])
    busiest = sorted(graph.models, key=lambda name: (-len(graph.parents[name]), name))[:2]
    for name in ("llama", *busiest):
        page.open(path, f"#model={name}", width=size[0], height=size[1])
        assert page.evaluate(OVERFLOWS) == []
        number, found = overlaps(page, ".card, .middle, .more, .column-title")
        assert number > 2 and found == []
