"""A shortened method holds `_` for the statements that are only moved, and each of their texts whole."""

from __future__ import annotations

import ast
import textwrap

import pytest

from modular_converter.convert.inherit.override import Shortened, shorten
from modular_converter.model.class_blocks import parse_class
from tests.unit.convert.inherit.merging import merge


def shortened(method: str, rewritten: str = "") -> Shortened:
    text = "class A:\n" + textwrap.indent(method, "    ")
    (member,) = parse_class(text).members
    return shorten(member, rewritten)


MOVED = {
    "statements on one line": ("x = 1; y = 2  # both", ["x = 1", "y = 2"]),
    "characters of several bytes": ("x = 'ü→'; y = 'é'  # ß", ["x = 'ü→'", "y = 'é'"]),
    "a statement over several lines": ("x = [\n    1,  # one\n]", ["x = [\n            1,  # one\n        ]"]),
    "a block with its last comment": (
        "if x:\n    y\n    # in\n# out\nz",
        ["if x:\n            y\n            # in", "z"],
    ),
    "a match with its last comment": (
        "match x:\n    case 1:\n        y\n        # in",
        ["match x:\n            case 1:\n                y\n                # in"],
    ),
    "a decorated function": ("@d(\n    1\n)\ndef f(): pass", ["@d(\n            1\n        )\n        def f(): pass"]),
    "a return": ("x\nreturn y", ["x", ""]),
    "several targets": ("x = y = 1\ndel x, y\ndel x", ["", "", "del x"]),
    "a call on a base": ("Base.f(self)\nself.g()", ["", "self.g()"]),
}


@pytest.mark.parametrize("name", MOVED)
def test_each_statement_is_taken_out_whole(name):
    body, texts = MOVED[name]
    method = "def f(self):  # header\n" + textwrap.indent(body, "    ") + "\n    # end\n"
    found = shortened(method, "f")
    assert list(found.statements) == texts
    whole = found.text
    for text in filter(None, texts):
        whole = whole.replace("_", text, 1)
    assert whole == textwrap.indent(method, "    ")


def test_a_body_on_the_line_of_its_header():
    assert shortened("def f(self): x = 1; y = 2\n") == ("    def f(self): _; _\n", ("x = 1", "y = 2"))


def test_a_block_with_another_indentation_is_moved_by_libcst():
    parent = "def f(self):\n  if self:\n    if self.x:\n      self.w = [\n    1]\n  self.y = 1"
    merged = merge("def f(self):\n    super().f()\n    self.z = 2", parent, bases="object")
    ast.parse(merged)
    assert "        if self:\n" in merged and "        self.y = 1\n" in merged
