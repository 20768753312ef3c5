"""The page holds its data safely; how it looks and works is tried in a browser (`tests/integration`)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

from modular_converter.graph.build import Edge, Graph, ImportedThing, InheritedClass, Model
from modular_converter.graph.formats import FOLDER, SCRIPTS, as_page, embedded


HOSTILE = "</script><script>alert(1)</script><!-- {{data}} & \u2028 ' \" \\"


class Parts(HTMLParser):
    """The elements of a page and the texts of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.current = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.current = dict(attrs).get("id") or tag

    def handle_endtag(self, tag):
        self.current = ""

    def handle_data(self, data):
        if self.current:
            self.texts[self.current] = self.texts.get(self.current, "") + data

    @property
    def policy(self) -> str:
        return next(attrs["content"] for tag, attrs in self.tags if attrs.get("http-equiv"))


def hostile() -> Graph:
    classes = (InheritedClass(HOSTILE, 1, HOSTILE, HOSTILE),)
    edge = Edge(HOSTILE, "a", classes, (ImportedThing(HOSTILE, "function", HOSTILE),))
    return Graph(HOSTILE, {HOSTILE: Model(HOSTILE, (HOSTILE,)), "a": Model("a")}, (edge,), (HOSTILE,))


def test_no_name_can_leave_the_data():
    page = Parts(as_page(hostile()))
    assert [tag for tag, _ in page.tags].count("script") == 2
    data = json.loads(page.texts["data"])
    assert data["title"] == data["models"][0][0] == data["edges"][0][2][0][0] == HOSTILE
    assert not re.search("[<>&\u2028\u2029]", page.texts["data"])
    assert embedded(["</script>"]) == '["\\u003c/script\\u003e"]'


def test_the_policy_allows_the_one_script_and_the_one_style(graph):
    page = Parts(as_page(graph))
    for directive, part in (("script-src", "script"), ("style-src", "style")):
        digest = base64.b64encode(hashlib.sha256(page.texts[part].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in page.policy
    assert page.policy.startswith("default-src 'none';")
    assert "unsafe" not in page.policy


def test_the_page_needs_nothing_else(graph):
    page = Parts(as_page(graph))
    assert not [attrs for tag, attrs in page.tags if "src" in attrs or tag in ("img", "iframe", "object", "base")]
    assert [attrs["href"] for tag, attrs in page.tags if tag == "link"] == ["data:,"]
    assert not re.search(r"\bon[a-z]+=", " ".join(str(attrs) for _, attrs in page.tags))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", as_page(graph))


def test_the_script_makes_text_only():
    for name in SCRIPTS:
        with open(f"{FOLDER}/{name}", encoding="utf-8") as file:
            text = file.read()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), name


def test_every_place_of_the_template_is_filled(graph):
    assert not re.search(r"\{\{\w+\}\}", as_page(graph))
