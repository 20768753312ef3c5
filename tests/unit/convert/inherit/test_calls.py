"""Calls of `super()` and on bases, and the decorators that an override takes over."""

from __future__ import annotations

import ast

import pytest

from modular_converter.convert.inherit.build import rename_class
from modular_converter.convert.source.library import ModelNames
from modular_converter.model.nodes import method_call
from modular_converter.model.overriding import first_parameter, inherited_decorators, sought_above


def statement(text: str) -> ast.stmt:
    (node,) = ast.parse(text).body
    return node


def function(text: str) -> ast.FunctionDef:
    node = statement(text)
    assert isinstance(node, ast.FunctionDef)
    return node


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("super().f(1)", True),
        ("return super().f()", True),
        ("await super().f()", True),
        ("return await super().f()", True),
        ("super(A, self).f()", True),
        ("super(B, self).f()", False),
        ("super().g()", False),
        ("x = super().f()", False),
        ("super().f", False),
        ("return super().f() + 1", False),
        ("self.super().f()", False),
        ("super().a.f()", False),
        ("return", False),
    ],
)
def test_the_statement_that_calls_the_parents_method(text: str, found: bool) -> None:
    assert (method_call(statement(text), "f", "A") is not None) is found


def test_without_a_class_super_may_name_any() -> None:
    assert method_call(statement("super(B, self).f()"), "f") is not None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("super(A, x).g", "A"),
        ("super( A, x )", "A"),
        ("A.g(self, 1)", "A"),
        ("A.g", "A"),
        ("A.__init__(x)", "A"),
        ("A.f(self)", ""),  # the parent's own
        ("A.g = 1", ""),
        ("A.__doc__", ""),
        ("super(B, self).g", ""),
        ("super().g", ""),
    ],
)
def test_what_is_sought_above_the_parent(text: str, found: str) -> None:
    owners = (sought_above(node, "A", {"f"}) for node in ast.walk(statement(text)))
    assert [ast.unparse(one) for one in owners if one] == ([found] if found else [])


@pytest.mark.parametrize(
    ("child", "parent", "names"),
    [
        ("def f(self): pass", "@a\n@b.c\n@d(1)\ndef f(self): pass", ["a", "b.c", "d(1)"]),
        ("def f(self): pass", "@abstractmethod\n@abc.abstractmethod\n@a\ndef f(self): pass", ["a"]),
        ("def f(self): pass", "@classmethod\ndef f(cls): pass", []),
        ("def f(self): pass", "@staticmethod\ndef f(x): pass", []),
        ("def f(cls): pass", "@classmethod\ndef f(cls): pass", ["classmethod"]),
        ("def f(cls, /, self): pass", "@classmethod\ndef f(cls): pass", ["classmethod"]),
        ("def f(): pass", "@staticmethod\ndef f(x): pass", ["staticmethod"]),
        ("def f(self): pass", "@property\ndef f(self): pass", ["property"]),
        ("def f(self, x=1): pass", "@property\ndef f(self): pass", ["property"]),
        ("def f(self, x): pass", "@property\n@functools.cached_property\ndef f(self): pass", []),
        ("def f(self, x, /): pass", "@property\ndef f(self): pass", []),
        ("def f(self): pass", "@contextmanager\n@asynccontextmanager\ndef f(self): yield", []),
        ("def f(self): yield 1", "@contextmanager\ndef f(self): yield", ["contextmanager"]),
        ("def f(self): super().f()", "@contextmanager\ndef f(self): yield", ["contextmanager"]),
        ("def f(self): pass", "@contextmanager\ndef f(self): return 1", ["contextmanager"]),
    ],
)
def test_the_decorators_that_an_override_takes_over(child: str, parent: str, names: list[str]) -> None:
    assert list(map(ast.unparse, inherited_decorators(function(child), function(parent)))) == names


@pytest.mark.parametrize(
    ("child", "parent", "name"),
    [
        ("def f(this, x): pass", None, "this"),
        ("def f(this, /, x): pass", None, "this"),
        ("def f(): pass", None, ""),
        ("def f(*args): pass", None, ""),
        ("@staticmethod\ndef f(x): pass", None, ""),
        ("@a\n@staticmethod\ndef f(x): pass", None, ""),
        ("@classmethod\ndef f(cls): pass", None, "cls"),
        ("def f(x): pass", "@staticmethod\ndef f(x): pass", ""),
        ("def f(self): pass", "@staticmethod\ndef f(x): pass", "self"),
        ("@a\ndef f(x): pass", "@staticmethod\ndef f(x): pass", "x"),
    ],
)
def test_the_parameter_that_holds_the_instance(child: str, parent: str | None, name: str) -> None:
    assert first_parameter(function(child), function(parent) if parent else None) == name


NAMES = ModelNames({"glm4v": "Glm4v", "glm4v_text": "Glm4vText"})


@pytest.mark.parametrize(
    ("text", "old", "new", "renamed"),
    [
        (
            'class Glm4vRotary:\n    "A Glm4v and glm4v."  # Glm4vRotary\n    def f(self): return Glm4vRotary, Glm4vMLP\n',
            "Glm4vRotary",
            "Glm4vTextRotary",
            'class Glm4vTextRotary:\n    "A Glm4vText and glm4v_text."  # Glm4vTextRotary\n'
            "    def f(self): return Glm4vTextRotary, Glm4vMLP\n",
        ),
        ('class A:\n    x = f"A {A}", "A"\n', "A", "B", 'class B:\n    x = f"A {B}", "B"\n'),
        ("class OldMLP: x = 'OldMLP'\n", "OldMLP", "MLP", "class MLP: x = 'OldMLP'\n"),
        ("class MLP: x = 'MLP', MLPs, my.MLP\n", "MLP", "OldMLP", "class OldMLP: x = 'MLP', MLPs, my.OldMLP\n"),
    ],
)
def test_a_parent_takes_the_name_of_a_child_that_is_called_otherwise(
    text: str, old: str, new: str, renamed: str
) -> None:
    assert rename_class(text, old, new, NAMES) == renamed
