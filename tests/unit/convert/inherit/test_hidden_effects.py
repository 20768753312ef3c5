"""What statements do by the methods of their class that they use, and which give the instance away."""

from __future__ import annotations

import ast

import pytest

from modular_converter.convert.inherit.statements import HiddenEffects, hands_over
from modular_converter.model.bindings import bindings_of


CLASS = """\
def plain(self, x):
    x.y = self.a
    self.b = x
def other(this):
    this.c.append(this.plain(1))
def circle(self):
    self.circle()
    self.round()
def round(self):
    self.circle()
    self.d = 1
def static(): ...
def shadow(self):
    return self.e
def shadow(self):
    self.f = 1
def first(self, /, x):
    return self.g
"""


@pytest.mark.parametrize(
    ("text", "reads", "binds", "changes"),
    [
        ("x = 1", "", "", ""),
        ("me.plain(1)", "a", "b", ""),
        ("x = me.plain", "a", "b", ""),  # a property
        ("me.other()", "a c plain", "b", "c"),
        ("me.round()", "circle round", "d", ""),
        ("me.circle()", "circle round", "d", ""),
        ("me.static()", "", "", ""),
        ("me.shadow()", "e", "f", ""),  # of both classes
        ("me.first(x)", "g", "", ""),
        ("me.unknown(), self.plain(), you.plain()", "", "", ""),
        ("me.x.plain()", "", "", ""),
    ],
)
def test_what_the_methods_do_that_a_statement_uses(text: str, reads: str, binds: str, changes: str) -> None:
    methods: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse(CLASS).body:
        assert isinstance(node, ast.FunctionDef)
        methods.setdefault(node.name, []).append(node)
    hidden = HiddenEffects(methods, "me")
    for _ in range(2):  # the second time from memory
        found = hidden.of(bindings_of(*ast.parse(text).body).effects)
        assert {path.removeprefix("me.") for path in found.reads} - {"c.append"} == set(reads.split())
        assert found.binds == {f"me.{name}" for name in binds.split()}
        assert {path for path in found.changes if path != "me"} - {""} == {f"me.{name}" for name in changes.split()}


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("count(self)", True),
        ("x = [self]", True),
        ("x.y = self", True),
        ("x = lambda: self", True),
        ("count(self, self.a)", True),
        ("count(self.a)", False),
        ("self.a = self.b(1)", False),
        ("super(New, self).f(1)", False),
        ("super(New, self).f(self)", True),
        ("super().f(1)", False),
        ("x = other", False),
        ("del self", False),
    ],
)
def test_statements_that_give_the_instance_away(text: str, given: bool) -> None:
    assert hands_over(ast.parse(text).body[0], "self") is given


@pytest.mark.parametrize(
    ("body", "sets", "reads"),
    [
        ("setattr(self, x, 1)", True, True),
        ("setattr(self, 'a', 1)", False, True),
        ("setattr(x, self.a, 1)", False, False),
        ("setattr(x, y, self.a)", False, False),
        ("getattr(self, x)", False, True),
        ("self.__dict__['a'] = 1", True, True),
        ("self.__dict__.update(x)", True, True),
        ("vars(self).update(x)", True, True),
        ("vars(x).update(self.a)", False, False),
        ("x.__dict__.update(self.a)", False, False),
        ("return self.__dict__", False, True),
        ("return vars(self)", False, True),
        ("self.a = x", False, False),
    ],
)
def test_methods_that_set_or_read_any_attribute(body: str, sets: bool, reads: bool) -> None:
    (fill, outer) = ast.parse(f"def fill(self, x, y):\n    {body}\ndef outer(self):\n    self.fill(1, 2)\n").body
    assert isinstance(fill, ast.FunctionDef) and isinstance(outer, ast.FunctionDef)
    hidden = HiddenEffects({"fill": [fill], "outer": [outer]}, "me")
    for text in ("me.fill(1, 2)", "me.outer()"):
        (node,) = ast.parse(text).body
        assert hidden.may_set_any(node, bindings_of(node).effects) is sets
        assert hidden.may_read_any(node, bindings_of(node).effects) is reads


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("me.a.freeze()", True),
        ("freeze(me.a)", True),
        ("me.a.b = 1", True),
        ("me.a.b.c = 1", True),
        ("me.a.b.freeze()", True),
        ("if x:\n    me.a.b = 1", True),
        ("me.set()", True),
        ("me.a = 1", False),
        ("me.a.b = me.a = 1", False),
        ("me.a[0] = 1", False),
        ("me.a.append(1)", False),
        ("me.b.a = 1", False),
        ("me.ab.c = 1", False),
        ("x = me.a.b", False),
    ],
)
def test_statements_that_only_set_an_object_up(text: str, told: bool) -> None:
    (set_up,) = ast.parse("def set(self):\n    self.a.b = 1\n").body
    assert isinstance(set_up, ast.FunctionDef)
    (node,) = ast.parse(text).body
    hidden = HiddenEffects({"set": [set_up]}, "me")
    assert hidden.only_sets_up(node, bindings_of(node).effects, "me.a") is told
