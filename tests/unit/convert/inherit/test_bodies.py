"""A method taken apart: its header and each of its statements, whole and without a loss."""

from __future__ import annotations

import ast
import textwrap

import pytest

from modular_converter.convert.inherit.statements import Body, body_of
from modular_converter.model.class_blocks import parse_class
from tests.unit.convert.inherit.merging import merge


def parts(method: str) -> Body:
    (member,) = parse_class("class A:\n" + textwrap.indent(method, "    ")).members
    return body_of(member)


PARTED = {
    "statements on one line": ("x = 1; y = 2  # both", ["x = 1", "y = 2  # both"]),
    "characters of several bytes": ("x = 'ü→'; y = 'é'  # ß", ["x = 'ü→'", "y = 'é'  # ß"]),
    "a statement over several lines": ("x = [\n    1,  # one\n]", ["x = [\n    1,  # one\n]"]),
    "a block with its last comment": ("if x:\n    y\n    # in\n# out\nz", ["if x:\n    y\n    # in", "z"]),
    "a match with its last comment": (
        "match x:\n    case 1:\n        y\n        # in",
        ["match x:\n    case 1:\n        y\n        # in"],
    ),
    "a decorated function": ("@d(\n    1\n)\ndef f(): pass", ["@d(\n    1\n)\ndef f(): pass"]),
}


@pytest.mark.parametrize("name", PARTED)
def test_each_statement_is_cut_out_whole(name: str) -> None:
    text, statements = PARTED[name]
    method = "@wrap\ndef f(self):  # header\n" + textwrap.indent(text, "    ") + "\n    # end\n"
    body = parts(method)
    assert [one.text for one in body.lines] == [textwrap.indent(f"{one}\n", "        ") for one in statements]
    spans = [body.header, *(span for one in body.lines for span in one.spans), body.footer]
    assert body.header.text == "    @wrap\n    def f(self):  # header\n" and body.footer.text == "        # end\n"
    if ";" not in text:
        assert "".join(span.text for span in spans) == textwrap.indent(method, "    ")


def test_a_body_on_the_line_of_its_header() -> None:
    body = parts("def f(self): x = 1; y = 2\n")
    assert body.header.text == "    def f(self):\n"
    assert [one.text for one in body.lines] == ["        x = 1\n", "        y = 2\n"]


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("a = b = 1  # x", "b = 1  # x"),
        ("b = a = (c := 2)", "b = (c := 2)"),
        ("a, d[e == 1] = (b) = [\n    3]", "(b) = [\n    3]"),
        ("b = a, d[f(x=1)] = g(y=2)", "b = g(y=2)"),
    ],
)
def test_an_assignment_loses_a_target(statement: str, kept: str) -> None:
    (line,) = parts("def f(self):\n" + textwrap.indent(statement, "    ") + "\n").lines
    found = line.without_targets({*line.targets} - {"b"})
    assert found is not None and found.text == textwrap.indent(f"{kept}\n", "        ")
    assert ast.unparse(ast.parse(textwrap.dedent(found.text))) == ast.unparse(found.node)


def test_a_block_with_another_indentation_gets_the_usual_one() -> None:
    parent = "def f(self):\n  if self:\n    if self.x:\n      self.w = [\n    1]\n  self.y = 1"
    merged = merge("def f(self):\n    super().f()\n    self.z = 2", parent, bases="object")
    ast.parse(merged)
    assert "        if self:\n" in merged and "        self.y = 1\n" in merged
