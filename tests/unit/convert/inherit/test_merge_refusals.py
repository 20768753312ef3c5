"""Overrides and classes that one class cannot express: each is refused or reported, with its place."""

from __future__ import annotations

import textwrap

import pytest

from tests.unit.convert.inherit.merging import child_text, findings, merge


REFUSED = {
    "a return in a condition": (
        "def f(self, x):\n    super().f(x)\n    self.done = True",
        "def f(self, x):\n    if x:\n        return 1\n    self.x = x",
        "MC204",
    ),
    "a coroutine in a plain method": (
        "def f(self):\n    return super().f()",
        "async def f(self):\n    return await self.g()",
        "MC204",
    ),
    "a generator as a statement": ("def f(self):\n    super().f()", "def f(self):\n    yield 1", "MC204"),
    "a local name for a function of the module": (
        "def f(self, x, apply=None):\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
        "MC211",
    ),
    "a parameter without a value": ("def f(self):\n    return super().f()", "def f(self, x):\n    return x", "MC210"),
    "unknown arguments": ("def f(self, *a):\n    return super().f(*a)", "def f(self, x):\n    return x", "MC210"),
    "a target that is assigned again and again": (
        "def f(self, x):\n    super().f(x)\n    x = x + 1\n    return x",
        "def f(self, x):\n    x = x * 2\n    x = x * 3\n    return x",
        "MC204",
    ),
    "an assignment that a return of the parent would skip": (
        "def f(self, x):\n    super().f(x)\n    self.a = 2",
        "def f(self, x):\n    if x:\n        return\n    self.a = 1",
        "MC204",
    ),
    "a private name of the parent": (
        "def f(self):\n    return self._OldMLP__a - self.__a",
        "def g(self):\n    self.__a = 2",
        "MC209",
    ),
    "a local name of both": (
        "def f(self, x):\n    h = x\n    super().f(x)\n    self.a = h",
        "def f(self, x):\n    h = 1\n    self.b = h",
        "MC211",
    ),
    "a builtin behind a local name of the parent": (
        "def f(self, x):\n    super().f(x)\n    return max(x, 2)",
        "def f(self, x):\n    max = 1\n    self.b = max",
        "MC211",
    ),
    "a builtin before a local name of the parent": (
        "def f(self, x):\n    y = max(x, 2)\n    super().f(x)\n    return y",
        "def f(self, x):\n    max = 1\n    self.b = max",
        "MC211",
    ),
    "a generator over a plain method": (
        "def f(self):\n    yield 1\n    return super().f()",
        "def f(self):\n    return 1",
        "MC204",
    ),
    "a function for a function of the module": (
        "def f(self, x):\n    def apply(y):\n        return y\n    self.g = apply\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
        "MC211",
    ),
    "a class for a function of the module": (
        "def f(self, x):\n    class apply:\n        pass\n    self.g = apply\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
        "MC211",
    ),
    "an import for a module of the module": (
        "def f(self, x):\n    import apply.fast\n    self.g = apply\n    return super().f(x)",
        "def f(self, x):\n    return apply.slow(x)",
        "MC211",
    ),
    "a local name for a function of the module that an inner function calls": (
        "def f(self, x):\n    apply = x\n    def g():\n        global apply\n        apply = 2\n    super().f(x)",
        "def f(self, x):\n    return apply(x)",
        "MC211",
    ),
    "a global name for a local one of the parent": (
        "def f(self, x):\n    global state\n    state = x\n    super().f(x)",
        "def f(self, x):\n    state = x + 1\n    self.x = state",
        "MC211",
    ),
    "a name that is bound below": (
        "def f(self, x):\n    super().f(x)\n    self.a = limit",
        "def f(self, x):\n    self.a = 1\n    limit = 2\n    self.b = limit",
        "MC211",
    ),
}


# The child's line above the call, the parent's lines, and the child's line below the call that is blamed instead.
CLOSURES = {
    "a function": ("def g(): return h", "h = 5\nself.b = h", ""),
    "a lambda in a list": ("g = [lambda: h][0]", "for h in (5,):\n    self.b = h", ""),
    "a lambda and a parameter": ("g = lambda: x", "x = x + 5\nself.b = x", ""),
    "a generator": ("g = (x + i for i in (1, 2))", "x = x + 5\nself.b = x", ""),
    "an assignment": ("def g(): nonlocal h; h = 2", "h = 5\nself.b = h", ""),
    "a function in a function": ("def g(): return (lambda: h)()", "h = 5\nself.b = h", ""),
    "a function of the parent": ("g = 1", "self.g = lambda: x", "x = 9"),
    "a method of a class of the parent": ("g = 1", "class A:\n    def g(self): return x\nself.g = A().g", "x = 9"),
}


@pytest.mark.parametrize(("above", "parent", "below"), CLOSURES.values(), ids=CLOSURES)
def test_a_function_that_would_see_the_other_methods_value_is_refused(above: str, parent: str, below: str) -> None:
    child = "def f(self, x):\n" + textwrap.indent(f"h = 1\n{above}\nsuper().f(x)\n{below}\nself.a = g", "    ")
    found = findings(child, "def f(self, x):\n" + textwrap.indent(parent, "    "))
    lines = child_text(child).split("\n")
    assert [(code, lines[line - 1].strip()) for code, line, _ in found] == [("MC211", below or above)]


@pytest.mark.parametrize(("child", "parent", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_one_class_cannot_say_is_an_error_with_its_place(child: str, parent: str, expected: str) -> None:
    ((code, line, _),) = findings(child, parent)
    assert code == expected
    assert line > 1


def test_a_local_name_that_the_call_passes_keeps_its_name() -> None:
    child, parent = "def f(self, x):\n    apply = x + 1\n    super().f(apply)", "def f(self, x):\n    return apply(x)"
    assert {code for code, _, _ in findings(child, parent)} == {"MC211", "MC315"}


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("self.g = lambda apply: apply", "return apply(x)"),
        ("self.g = [apply for apply in x]", "return apply(x)"),
        ("global state\n    state = 1", "self.a = state"),
        ("apply = x\n    self.g = apply", "self.h = lambda apply: apply"),
    ],
)
def test_a_name_of_an_inner_scope_hides_none_of_the_module(child: str, parent: str) -> None:
    merge(f"def f(self, x):\n    {child}\n    return super().f(x)", f"def f(self, x):\n    {parent}")


MAKING = {
    "a hook of the parent": ("def __init_subclass__(cls):\n    cls.tag = 1", "a = 1", ["MC208"]),
    "a hook that the child has too": (
        "def __init_subclass__(cls):\n    cls.tag = 1",
        "def __init_subclass__(cls):\n    pass",
        ["MC208"],
    ),
    "the parent as `__class__`": ("def f(self):\n    return __class__.a", "a = 2", ["MC206"]),
    "`__class__` in a method that is replaced": (
        "def f(self):\n    return __class__.a",
        "def f(self):\n    return 1",
        [],
    ),
    "`__class__` in a method that is extended": (
        "def f(self):\n    return __class__.a",
        "def f(self):\n    return super().f()",
        ["MC206"],
    ),
    "`super` of `__class__`": ("def f(self):\n    return [super(__class__, self).f() for _ in 'a']", "a = 2", []),
    "the class of the instance": ("def f(self):\n    return self.__class__.a", "a = 2", []),
}


@pytest.mark.parametrize(("parent", "child", "codes"), MAKING.values(), ids=MAKING)
def test_what_python_does_for_two_classes(parent: str, child: str, codes: list[str]) -> None:
    assert [code for code, _, _ in findings(child, parent)] == codes


@pytest.mark.parametrize(("bases", "codes"), [("metaclass=Meta", ["MC208"]), ("abc.ABC, metaclass=abc.ABCMeta", [])])
def test_metaclasses(bases: str, codes: list[str]) -> None:
    assert [code for code, _, _ in findings("a = 1", "b = 2", bases)] == codes


TOLD = {
    "a local name that the parent's lines read": (
        "def f(self, m):\n    super().f(m)\n    std = 1.0\n    m.put(std)",
        "def f(self, m):\n    std = 0.02\n    m.set(std)",
        "MC321",
    ),
    "a local name that the parent's lines may not have bound": (
        "def f(self, xs):\n    i = 9\n    self.a = i\n    return super().f(xs)",
        "def f(self, xs):\n    for i in xs:\n        pass\n    return i",
        "MC321",
    ),
    "a parameter that the parent rebinds": (
        "def f(self, x):\n    super().f(x)\n    return x",
        "def f(self, x):\n    x = x + 1\n    self.b = x",
        "MC321",
    ),
    "a local name that has no value yet": (
        "def f(self, t):\n    super().f(t)\n    t = t or 2\n    self.a = t",
        "def f(self, t):\n    self.a = t",
        "MC321",
    ),
    "the iterable of a comprehension": (
        "def f(self, x):\n    super().f(x)\n    return [x for x in (1, x)]",
        "def f(self, x):\n    x = 1",
        "MC321",
    ),
    "a default of the parent": (
        "def f(self, x, y=2):\n    return super().f(x)",
        "def f(self, x, y=1):\n    return x + y",
        "MC315",
    ),
    "an assignment in another method of the parent": (
        "def f(self):\n    super().f()\n    self.a = 2\ndef g(self):\n    return super().g()",
        "def f(self):\n    self.a = 1\ndef g(self):\n    self.a = 3",
        "MC316",
    ),
    "two assignments of the parent": (
        "def f(self):\n    super().f()\n    self.a = 2",
        "def f(self):\n    self.a = 1\n    self.a = 3",
        "MC316",
    ),
    "an annotated attribute": ("a = 2", "a: int = 1", "MC323"),
    "a setter of the parent": (
        "@property\ndef a(self):\n    return 1",
        "@property\ndef a(self):\n    return 2\n@a.setter\ndef a(self, value):\n    pass",
        "MC323",
    ),
}


@pytest.mark.parametrize(("child", "parent", "told"), TOLD.values(), ids=TOLD)
def test_what_inheritance_does_otherwise_is_told(child: str, parent: str, told: str) -> None:
    assert [code for code, *_ in findings(child, parent)] == [told]
