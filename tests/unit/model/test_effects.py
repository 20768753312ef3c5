"""What statements read, bind and change: names in their own scope, and dotted paths in all scopes."""

from __future__ import annotations

import ast
import textwrap

import pytest

from modular_converter.model.bindings import bindings_of
from modular_converter.model.class_blocks import parse_class


EFFECTS = {
    "a.b.c = d": ("a a.b d", "a.b.c", ""),
    "a: int": ("int", "", ""),
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
    "def f():\n    global a\n    a = b + c\n    def g():\n        global c": ("b c", "f", ""),
    "a = lambda b: b + c": ("c", "a", ""),
    "a = lambda *b: ((lambda c: c)(b), c)": ("c", "a", ""),
    "def f(a): return (lambda b, /, *, c, **d: c), b, d": ("b d", "f", ""),
    "class A:\n    b = c\n    def f(self): return b": ("b c", "A", ""),
    "class A(B):\n    c = d": ("B d", "A", ""),
    "a = [b + c for b in d if b]": ("c d", "a", ""),
    "a = [(b := c) for c in d]": ("d", "a b", ""),
    "a = {k: v for k, v in b.items()}": ("b b.items", "a", ""),
    "with a as b, c.d as e.f: pass": ("a c c.d e", "b e.f", ""),
}


@pytest.mark.parametrize(("text", "expected"), EFFECTS.items(), ids=EFFECTS)
def test_effects(text: str, expected: tuple[str, str, str]) -> None:
    found = bindings_of(*ast.parse(text).body).effects
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
    (member,) = parse_class(f"class _:\n{textwrap.indent(text, '    ')}\n").members
    names = (member.reads, member.binds, member.touches)
    assert tuple(" ".join(sorted(some)) for some in names) == expected


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = b", ""),
        ("a = lambda b=c, *d: (b, d, e)", "e"),
        ("@a\ndef f(b: c = d) -> e:\n    g = h\n    return g, self.i", "h self"),
        ("def f():\n    nonlocal a, b\n    a = 1\n    b += c", "a b c"),
        ("def f():\n    global a\n    a = 1\n    return lambda: b", "b"),
        ("class A:\n    a = b\n    def f(self): return a", "a"),
        ("a = (b + c for b in d for e in f if g)", "c f g"),
        ("a = [b + c for b in d]", ""),
        ("a = [lambda: b + c for b in d]", "c"),
        ("a = sum(b for b in c if d), list(e for f in g), max(h for i in j)", ""),
        ("a = ','.join(b for c in d), e.sum(f for g in h)", "f"),
        ("a = sorted(b, key=lambda c: d), dict(key=lambda: e), list(lambda: f), b.sort(key=lambda: g)", "e f g"),
    ],
)
def test_what_inner_functions_read_when_they_run(text: str, names: str) -> None:
    assert bindings_of(*ast.parse(text).body).reads_later == set(names.split())
