"""The page of the graph, tried in a real browser: what it shows, how it is steered, and that nothing overlaps.

Pixels are not compared one by one, since fonts differ between machines. A screenshot must have ink in each region and
the right brightness; everything else is asked of the page itself: boxes, names, curves, contrast.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import discover, models_folder
from modular_converter.graph import Graph, render
from modular_converter.graph.build import build_graph
from modular_converter.settings.load import profile_settings
from tests.integration.browser import Page, browser_page, find_browser, pixels


BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chrome or edge is on the path")

REPOSITORY = Path(__file__).parents[2]
SIZES = [(1280, 800), (1600, 900), (820, 1100), (390, 844), (320, 640)]
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
CONTRASTS = """
((selectors) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const channels = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (one) => {
    for (let here = one; here; here = here.parentElement) {
      const color = channels(getComputedStyle(here).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  return selectors.map((selector) => {
    const one = document.querySelector(selector);
    const [a, b] = [light(channels(getComputedStyle(one).color)), light(behind(one))];
    return [selector, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
})(SELECTORS)
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    assert BROWSER is not None
    with browser_page(BROWSER, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """The browser's page; nothing that a test does with it may make the console complain."""
    browser.complaints.clear()
    yield browser
    browser.settle()
    assert browser.complaints == []


def read(folder: str) -> Graph:
    paths = discover(["all"], folder).paths
    graph, diagnostics = build_graph(paths, folder, Library(profile_settings()))
    assert not diagnostics
    return graph


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Path]:
    """The graph of the repository's own models, and its page."""
    graph = read(str(REPOSITORY / "models"))
    path = tmp_path_factory.mktemp("small") / "graph.html"
    path.write_text(render("html", graph), encoding="utf-8")
    return graph, path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Path]:
    """The graph of transformers, and its page."""
    folder = models_folder("transformers", None, "")
    assert folder is not None
    graph = read(folder)
    path = tmp_path_factory.mktemp("large") / "graph.html"
    path.write_text(render("html", graph), encoding="utf-8")
    return graph, path


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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("which", ["small", "large"])
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


@pytest.mark.parametrize("which", ["small", "large"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
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


def test_keys_reach_everything(page, large):
    _, path = large
    page.open(path)
    focused = "document.activeElement.textContent"
    page.press("/")
    page.press("ArrowDown")
    assert page.evaluate(focused) == "llama"
    page.press("ArrowDown")
    second = page.evaluate(focused)
    page.press("Enter")
    assert page.evaluate("document.querySelector('#focus-title').textContent") == second
    page.evaluate("document.activeElement.blur()")
    page.press("ArrowRight")
    assert page.evaluate("document.activeElement.className").startswith("card is-heir")
    heir = page.evaluate("document.activeElement.querySelector('span').textContent")
    assert page.evaluate("document.getElementById('tip').hidden") is False, "the focus tells what the mouse tells"
    page.press("Enter")
    assert page.evaluate("document.querySelector('#focus-title').textContent") == heir
    page.press("Escape")
    if not page.evaluate("document.querySelector('#focus').hidden"):
        page.press("Escape")
    assert page.evaluate("document.querySelector('#overview').hidden") is False
    assert page.evaluate(focused) == heir, "back on the name that was open"


def test_the_list_sorts_and_filters(page, large):
    graph, path = large
    page.open(path)
    first = "document.querySelector('#rows a').textContent"
    assert page.evaluate(first) == max(graph.heir_counts, key=lambda name: graph.heir_counts[name])
    page.click("[data-sort=saved]")
    assert page.evaluate(first) == max(graph.models, key=lambda name: graph.models[name].lines_saved or 0)
    page.click("[data-sort=name]")
    assert page.evaluate(first) == min(graph.models)
    assert page.evaluate("document.querySelector('th [data-sort=name]').parentElement.ariaSort") == "ascending"
    page.press("/")
    page.type("qwen-")
    shown = page.evaluate("[...document.querySelectorAll('#rows a')].map(e => e.textContent)")
    assert sorted(shown) == sorted(name for name in graph.models if "qwen_" in name)
    page.type("no such thing")
    assert page.evaluate("document.getElementById('nothing').hidden") is False


def test_an_address_opens_its_model_and_an_unknown_one_says_so(page, large):
    _, path = large
    page.open(path, "#model=clip")
    assert page.evaluate("document.querySelector('#rows tr.chosen a').textContent") == "clip"
    page.open(path, "#model=%3Cb%3Enothing")
    assert page.evaluate("document.getElementById('status').textContent") == "There is no model called <b>nothing."
    assert page.evaluate("document.getElementById('overview').hidden") is False


@pytest.mark.parametrize("fragment", ["", "#model=gemma"])
def test_everything_that_can_be_pressed_has_a_name(page, small, fragment):
    page.open(small[1], fragment)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    pressed = [node for node in nodes if node.get("role", {}).get("value") in ("link", "button", "searchbox")]
    assert len(pressed) > 8
    assert not [node for node in pressed if not node.get("name", {}).get("value", "").strip()]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(page, large, dark):
    everywhere = [".top p", ".top h1 a", "#rows a", "#rows td", "#list button", ".keys", ".by-hand a"]
    places = {
        "": [".chip", ".lead", ".band-title span"],
        "#model=gemma2": [".card.is-ancestor em", ".card.is-heir span", ".middle span", ".column h3", ".saved dd"]
        + [".classes code", ".classes small", ".details summary small", ".details h3", ".facts small", ".chosen a"],
    }
    for fragment, selectors in places.items():
        page.open(large[1], fragment, dark=dark)
        found = page.evaluate(CONTRASTS.replace("SELECTORS", json.dumps(everywhere + selectors)))
        assert not [(selector, ratio) for selector, ratio in found if ratio < 4.5]


def test_hostile_names_are_only_text(browser, tmp_path):
    names = [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(2)",
        "a&b;#model=c",
        "\u202eback",
        "%zz",
        "x" * 200,
    ]
    for name in names:
        folder = tmp_path / "models" / name.replace("/", "")
        folder.mkdir(parents=True)
        (folder / "modular_x.py").write_text("from ..old.modeling_old import Old\nclass New(Old): ...\n")
    (tmp_path / "models" / "old").mkdir()
    (tmp_path / "models" / "old" / "modeling_old.py").write_text("class Old: ...\n")
    graph = read(str(tmp_path / "models"))
    page = tmp_path / "page.html"
    page.write_text(render("html", graph), encoding="utf-8")
    browser.complaints.clear()
    for size in SIZES:
        browser.open(page, "#model=old", width=size[0], height=size[1])
        assert browser.evaluate(OVERFLOWS) == []
        assert names_of(browser, "is-heir") == set(graph.models) - {"old"}
    for name in sorted(graph.models):
        browser.evaluate(
            f"[...document.querySelectorAll('#rows a')].find(e => e.textContent === {json.dumps(name)}).click()"
        )
        browser.settle()
        assert browser.evaluate("document.getElementById('focus-title').textContent") == name
    assert browser.evaluate("document.querySelectorAll('img, body script:not([id])').length") == 1, (
        "the page's own script"
    )
    assert browser.complaints == []
    refused = "(() => { try { document.body.innerHTML = '<p>'; return false } catch { return true } })()"
    assert browser.evaluate(refused), "the policy refuses markup made from text"


def test_circles_are_shown_on_both_sides(page, tmp_path):
    for name, parent in (("one", "two"), ("two", "three"), ("three", "one")):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / f"modular_{name}.py").write_text(f"from ..{parent}.modeling_{parent} import A\nclass A(A): ...\n")
    graph = read(str(tmp_path / "models"))
    path = tmp_path / "page.html"
    path.write_text(render("html", graph), encoding="utf-8")
    page.open(path, "#model=one")
    assert names_of(page, "is-ancestor") == names_of(page, "is-heir") == {"two", "three"}
    for card in ('.is-heir .card[href="#model=two"]', '.is-ancestor .card[href="#model=two"]'):
        page.hover(card)
        assert page.evaluate("document.getElementById('tip').hidden") is False
    page.click(".card")
    page.press("Escape")


def test_the_page_of_the_whole_library_is_small(large):
    assert large[1].stat().st_size < 500_000


def test_a_selection_opens_at_its_model(page, large, tmp_path):
    path = tmp_path / "part.html"
    path.write_text(render("html", large[0].around(["gemma2"])), encoding="utf-8")
    page.open(path)
    assert page.evaluate("document.querySelector('#focus-title').textContent") == "gemma2"
    assert page.evaluate("document.getElementById('totals').textContent").startswith("Only gemma2, with ancestors")
