"""Definitions compared by what runs, and the globals that they read."""

from __future__ import annotations

import pytest

from modular_converter.convert.examine.code import globals_read, same_code


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
