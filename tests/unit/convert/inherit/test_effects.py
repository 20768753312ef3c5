"""What statements read, bind and change: names in their own scope, and dotted paths in all scopes."""

from __future__ import annotations

import ast

import pytest

from modular_converter.convert.inherit.effects import effects_of
from modular_converter.convert.inherit.scopes import all_reads, names_of


EFFECTS = {
    "a.b.c = d": ("a a.b d", "a.b.c", ""),
    "a: int": ("", "", ""),
    "a: int = b": ("b int", "a", ""),
    "a.b += c": ("a a.b c", "a.b", ""),
    "a[b] = c": ("a b c", "", "a"),
    "a.b[0][1] = c": ("a a.b c", "", "a.b"),
    "a[0].b = c": ("a c", "", "a"),
    "del a.b, c[0]": ("a c", "a.b", "c"),
    "a.b.append(c)": ("a a.b a.b.append c", "", "a.b c"),
    "a[0].b().append(1)": ("a", "", "a"),
    "await a.go(b)": ("a a.go b", "", "a b"),
    "f(a.b, *c, d=e[0], g=1)": ("a a.b c e f", "", "a.b e"),
    "f()(a)": ("a f", "", "a"),
    "(a + b).append(c)": ("a b c", "", "c"),
    "super().f(a)": ("a super", "", "super"),
    "a = f(b)": ("b f", "a", ""),
    "import a.b, c as d": ("", "a d", ""),
    "from a import b, c as d": ("", "b d", ""),
    "for a in b: c = a": ("a b", "a c", ""),
    "try:\n    a()\nexcept E as e:\n    pass": ("E a", "e", ""),
    "match a:\n    case [b, *c]: pass\n    case {'k': 1, **d}: pass": ("a", "b c d", ""),
    "def f(a, b=c):\n    d = a + e\n    x.y = 1": ("c e x", "f x.y", ""),
    "def f():\n    nonlocal a\n    a = b\n    c[0] = 1": ("b c", "a f", "c"),
    "a = lambda b: b + c": ("c", "a", ""),
    "class A(B):\n    c = d": ("B d", "A", ""),
    "a = [b + c for b in d if b]": ("c d", "a", ""),
    "a = [(b := c) for c in d]": ("d", "a b", ""),
    "a = {k: v for k, v in b.items()}": ("b b.items", "a", ""),
    "with a as b, c.d as e.f: pass": ("a c c.d e", "b e.f", ""),
}


@pytest.mark.parametrize(("text", "expected"), EFFECTS.items(), ids=EFFECTS)
def test_effects(text: str, expected: tuple[str, str, str]) -> None:
    found = effects_of(*ast.parse(text).body)
    assert tuple(" ".join(sorted(paths - {""})) for paths in found) == expected
    assert found.writes == found.binds | found.changes


NAMES = {
    "a = b": ("b", "a", "a"),
    "a = b(c)": ("b c", "a", "a b c"),
    "a.b = c": ("a c", "", "a c"),
    "a[b] += c": ("a b c", "", "a b c"),
    "a += b": ("a b", "a", "a"),
    "del a": ("", "a", "a"),
    "@a(b)\ndef f(c: d = e) -> g: h = i": ("a b d e g", "f", "a b d e f g"),
    "@a\nasync def f(): await b": ("a", "f", "f"),
    "@a\nclass A(b, c=d): e = f": ("a b d", "A", "A"),
    "a = lambda b=c: d": ("c", "a", "a"),
    "a = lambda b=c(): d": ("c", "a", "a c"),
    "a = [b for b in c for d in e]": ("c", "a", "a"),
    "a = {b() for b in c}": ("c", "a", "a"),
    "import a.b, c as d": ("", "a d", "a d"),
    "try:\n    a\nexcept E as e:\n    pass": ("E a", "e", "e"),
    "match a:\n    case [*b]: pass\n    case {**c}: pass": ("a", "b c", "b c"),
}


@pytest.mark.parametrize(("text", "expected"), NAMES.items(), ids=NAMES)
def test_names_of_a_scope(text: str, expected: tuple[str, str, str]) -> None:
    assert tuple(" ".join(sorted(names)) for names in names_of(*ast.parse(text).body)) == expected


def test_all_reads() -> None:
    tree = ast.parse("def f(a):\n    b.c.d = e().g + (lambda: h.i)().j\n    k = l\n")
    assert all_reads(tree) == {"b", "b.c", "e", "h", "h.i", "l"}
