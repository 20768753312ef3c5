"""The definition at a line of a generated text, whether Python can parse the text or not."""

from __future__ import annotations

import pytest

from modular_converter.convert.examine.faults import binding_below, definition_at, globals_read, same_code


TEXT = """\
import os

SIZE = other(1)


@wrap(
    SIZE
)
def first(x):
    class Inner:
        def deep(self):
            return x


class Second(Base): size = 1
class Third:

    def first(self):
        return other


SIZE = 2
"""
LINES = TEXT.split("\n")


def line_of(beginning: str) -> int:
    return next(number for number, line in enumerate(LINES, start=1) if line.startswith(beginning))


@pytest.mark.parametrize("broken", ["", "def broken(:\n", "x = 'not closed\n"])
@pytest.mark.parametrize(
    ("beginning", "name"),
    [
        ("def first", "first"),
        ("        def deep", "first"),
        ("class Second", "Second"),
        ("class Third", "Third"),
        ("    def first", "Third"),
        ("        return other", "Third"),
    ],
)
def test_the_definition_around_a_line(broken: str, beginning: str, name: str) -> None:
    line = line_of(beginning)
    assert definition_at(TEXT + broken, line, "other") == (name, line)


def test_what_is_outside_of_all_definitions() -> None:
    assert definition_at(TEXT, line_of("@wrap"), "SIZE") == ("first", line_of("@wrap"))
    assert definition_at(TEXT, line_of("SIZE"), "other") == ("Third", line_of("        return other"))
    assert definition_at(TEXT, line_of("SIZE"), "nobody") == ("", line_of("SIZE"))
    assert definition_at(TEXT + "def broken(:\n", line_of("SIZE"), "other") == ("", line_of("SIZE"))


def test_the_next_line_that_binds_a_name() -> None:
    assert binding_below("SIZE", 1, TEXT) == line_of("SIZE = other")
    assert binding_below("SIZE", line_of("SIZE = other"), TEXT) == line_of("SIZE = 2")
    assert binding_below("SIZE", line_of("SIZE = 2"), TEXT) == 0
    assert binding_below("first", 1, TEXT) == line_of("def first")
    assert binding_below("Inner", 1, TEXT) == 0


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("def f(x):\n    return x", "def f(x: int) -> int:\n    'Doc.'\n\n    return (x)  # same", True),
        ("async def f(*x): pass", "async def f(*x: int) -> 'y': pass", True),
        ("class A:\n    'One.'\n    x: int = 1", "class A:\n    'Two.'\n    x: int = 1", True),
        ("class A:\n    def f(self): pass", "class A:\n    def f(self: A) -> None: pass", True),
        ("def f(x):\n    return x", "def f(x):\n    return -x", False),
        ("def f(x=1): pass", "def f(x=2): pass", False),
        ("def f():\n    return 'One.'", "def f():\n    return 'Two.'", False),
        ("def f(x): pass", "async def f(x): pass", False),
        ("x = 1", "x = 2", False),
    ],
)
def test_what_runs(first: str, second: str, same: bool) -> None:
    assert same_code(first, second) is same
    assert same_code(second, first) is same


def test_globals() -> None:
    text = "@a\nclass A(b):\n    c = d\n    def f(self, e=g):\n        h = i.j\n        return h, e, self.k, [m for m in n]\n"
    assert globals_read(text) == {"a", "b", "d", "g", "i", "n"}
    assert globals_read("def f():\n    global x\n    x = y\n") == {"y"}
    assert globals_read("x = 1\ny = x + z\n") == {"x", "z"}
