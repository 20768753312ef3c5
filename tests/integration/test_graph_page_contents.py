"""The page of the graph in a browser: keys, lists, addresses, hostile names, circles and selections."""

from __future__ import annotations

import json

import pytest

from modular_converter.graph import render
from tests.integration.test_graph_page import BROWSER, OVERFLOWS, SIZES, names_of, read


pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chrome or edge is on the path")

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


@pytest.mark.slow
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
