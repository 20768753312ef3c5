"""Names that code may read before they have a value: Python is the oracle, which is run for each value of the conditions."""

from __future__ import annotations

import ast
import textwrap

import pytest

from modular_converter.convert.inherit.super_calls import read_unbound


BODIES = [
    "for i in a: pass\nreturn i",
    "for i in a: i\nelse: i = 2\ni",
    "if a: i = 1\ni",
    "if a: i = 1\nelse: i = 2\ni",
    "if a: return\nelse: i = 2\ni",
    "while a:\n    i = 1\n    i\n    break\ni",
    "with open(__file__) as i: i\ni",
    "with open(__file__):\n    if a: i = 1\n    i",
    "try: a[0]\nexcept IndexError: i = 1\ni",
    "try:\n    a[0]\n    i = 1\nexcept IndexError: return\ni",
    "try:\n    a[0]\n    i = 1\nfinally:\n    i",
    "try: pass\nfinally: i = 1\ni",
    "try: a[0]\nexcept IndexError: pass\nelse: i = 1\ni",
    "match a:\n    case [i]: i\ni",
    "for x in a:\n    break\nelse: i = 2\ni",
    "match i: \n    case _: pass",
    "i = i",
    "i = 1\ni += 1",
    "i += 1",
    "[i for i in a]\ni = 2",
    "[i for x in a]",
    "import os as i\ni",
    "def i(): pass\ni()",
    "def g(): return i\ni = 1",
    "(i := 1)\ni",
]


@pytest.mark.parametrize("body", BODIES)
def test_a_name_is_reported_where_python_may_find_no_value(body: str) -> None:
    text = f"def f(a):\n{textwrap.indent(body, '    ')}\n"
    found = read_unbound(ast.parse(text).body[0].body, frozenset({"i"}))  # type: ignore[attr-defined]
    assert ("i" in found) is any(_lacks_value(text, a) for a in ([], [1]))


def _lacks_value(text: str, a: list[int]) -> bool:
    space = {"__file__": __file__}
    exec(f"{text}    i = 0\n", space)  # the last line makes the name a local one
    try:
        space["f"](a)  # type: ignore[operator]
    except NameError:
        return True
    except IndexError:
        return False
    return False
