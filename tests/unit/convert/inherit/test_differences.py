"""Which lines write what a place reads, and which do more when they run twice."""

from __future__ import annotations

import ast

import pytest

from modular_converter.convert.inherit.differences import FARTHEST, Execution, returns_in
from modular_converter.convert.inherit.statements import Line, added_line, counts_twice
from modular_converter.model.bindings import covers


def lines(text: str) -> list[Line]:
    return [added_line(ast.unparse(node), node) for node in ast.parse(text).body]


def run(body: list[Line]) -> Execution:
    return Execution(body, "self", lambda one: one.effects.writes - {"self"})


BODY = """\
a = 1
self.b = a
self.b.c = 2
a += 1
self.go(a)
del self.b
self.b.c.append(3)
self.b: int
"""


@pytest.mark.parametrize(
    ("path", "end", "places"),
    [
        ("a", 8, [4, 3, 0]),  # a call may change it, and `+=` takes what is there
        ("a", 3, [0]),
        ("a", 0, []),
        ("self.b", 5, [1]),
        ("self.b.c", 3, [2]),
        ("self.b.c", 2, [1]),  # with the object that holds it
        ("self.b.c", 8, [6]),  # a deletion leaves no value
        ("self.d", 8, []),  # what is done to the whole instance is not followed
        ("self", 8, []),
    ],
)
def test_the_lines_that_make_up_a_value(path: str, end: int, places: list[int]) -> None:
    body = lines(BODY)
    assert [body.index(one) for one in run(body).writers(path, end)] == places


def test_many_writers_are_followed_for_some_lines() -> None:
    body = lines("a.b = 0\n" + "a.go()\n" * (FARTHEST + 5))
    history = run(body)
    assert len(history.writers("a", len(body))) == FARTHEST
    assert history.writers("a.b", 3) == [body[2], body[1], body[0]]


@pytest.mark.parametrize(("name", "binders"), [("a", [None, 0, 0, 0, 3, 3, 3, 3, 3]), ("b", [None] * 9)])
def test_the_last_line_above_that_binds_a_name(name: str, binders: list[int | None]) -> None:
    body = lines(BODY)
    found = [run(body).binder(name, end) for end in range(len(body) + 1)]
    assert [one and body.index(one) for one in found] == binders


def test_whether_a_name_is_bound_at_or_below_a_place() -> None:
    history = run(lines(BODY))
    assert [history.binds_from("a", place) for place in range(5)] == [True, True, True, True, False]
    assert not history.binds_from("x", 0)


def test_a_line_that_is_not_repeated_stands_where_the_same_one_does() -> None:
    body = lines("a = 1\nb = 2\n")
    again, other = lines("b  =  2\nc = 3\n")
    history = run(body)
    assert [history.place(one) for one in (*body, again, other)] == [0, 1, 1, None]


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("self.a = 1", False),
        ("'a string'", False),
        ("a = go(b)", False),
        ("self.a.b = self.a", False),
        ("self.a = self.a.b", True),
        ("a += 1", True),
        ("a[0] = 1", True),
        ("self.go()", True),
        ("self[0] = 1", False),
        ("if a:\n    go()", True),
        ("for a in b:\n    c = a", True),
        ("for a in b:\n    c = 1", False),
    ],
)
def test_lines_that_count_twice(text: str, twice: bool) -> None:
    (one,) = lines(text)
    assert counts_twice(one, "self") is twice


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("return 1", 1),
        ("a = 1", 0),
        ("if a:\n    return 1\nelse:\n    return", 2),
        ("for a in b:\n    def f():\n        return 1\n    return 2", 1),
        ("class A:\n    def f(self):\n        return 1", 0),
    ],
)
def test_returns_of_the_method_itself(text: str, number: int) -> None:
    assert len([*returns_in(ast.parse(text).body[0])]) == number


def test_a_path_covers_what_it_holds() -> None:
    assert covers("self.a", "self.a") and covers("self.a", "self.a.b")
    assert not covers("self.a", "self.ab") and not covers("self.a.b", "self.a")
