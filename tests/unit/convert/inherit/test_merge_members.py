"""Members of a class laid over the parent's: compared with Python's own inheritance by running both."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import pytest

from modular_converter.convert.inherit.merge import merge_class
from modular_converter.convert.inherit.super_calls import ROUNDS
from tests.unit.convert.inherit.merging import NAMES, SETTINGS, child_text, class_text, findings, merge


def run(child: str, parent: str, expression: str) -> tuple[Any, Any]:
    """The value of an expression over `new`, an instance of the child: with Python's inheritance, and as merged."""
    inherited: dict[str, Any] = {}
    exec(class_text("class OldMLP:", parent) + child_text(child), inherited)
    merged: dict[str, Any] = {}
    exec(merge(child, parent, bases="object"), merged)
    return tuple(eval(expression, {**scope, "new": scope["NewMLP"]()}) for scope in (inherited, merged))  # type: ignore[return-value]


ALIKE = {
    "one name of a chain": ("a = 5", "a = b = 2", "new.a, new.b"),
    "one name of a tuple": ("a = 5", "a, b = 1, 2", "new.a, new.b"),
    "one of two on a line": ("a = 5", "a = 1; b = 2", "new.a, new.b"),
    "a name that another attribute reads": ("size = 8", "size = 2\narea = size * size", "new.size, new.area"),
    "a name that a default reads": ("size = 8", "size = 2\ndef f(self, x=size):\n    return x", "new.size, new.f()"),
    "a method that an attribute reads": (
        "def _get(self):\n    return 2",
        "def _get(self):\n    return 1\nvalue = property(_get)",
        "new.value, new._get()",
    ),
    "an alias": ("def f(self):\n    return 2", "def f(self):\n    return 1\ng = f", "new.f(), new.g()"),
    "attributes that read each other": ("late = 1\nbase = late", "base = 2", "new.base"),
    "several statements for a name": ("", "names = ['a']\nnames = names + ['b']\nnames += ['c']", "new.names"),
    "a loop": ("", "names = []\nfor i in range(2):\n    names.append(i)", "new.names"),
    "a call as a statement": ("", "names = []\nnames.append(1)\ndef f(self): pass\nnames.append(2)", "new.names"),
    "a call whose value the child replaces": ("x = 3", "names = []\nx = names.append(1)", "new.names, new.x"),
    "calls whose values are assigned again": (
        "",
        "names = []\nx = names.append(1)\nx = names.append(1)\nx = names.append(2)",
        "new.names, new.x",
    ),
    "a local name of a line that both have": (
        "def f(self, x=1):\n    h = x + 1\n    super().f(x)\n    self.b = h\n    return self",
        "def f(self, x=1):\n    h = x + 1\n    self.a = h",
        "new.f().b",
    ),
    "a removal of several, one of which is set in a block": (
        "def f(self, x=1):\n    super().f(x)\n    del self.a, self.c, self.d",
        "def f(self, x=1):\n    self.a = self.d = 1\n    self.b = 2\n    if x:\n        self.c = 3",
        "new.f(), vars(new)",
    ),
    "defaults of the parent": (
        "def f(self):\n    return super().f()",
        "def f(self, w=+1, x=-1, y=(1, -2), *, z=None):\n    return w, x, y, z",
        "new.f()",
    ),
    "several signatures": (
        "from typing import overload\n@overload\ndef f(self, x: int) -> int: ...\n@overload\ndef f(self, x: str) -> str: ...\n"
        "def f(self, x):\n    return x",
        "def f(self, x):\n    return 1",
        "new.f(3)",
    ),
    "an attribute that is assigned twice": ("a = 1\na = 2", "b = 1\nb = 2\nc = b\nb = 3", "new.a, new.b, new.c"),
    "one argument for many": (
        "def f(self, x=3):\n    return super().f(x)",
        "def f(self, *a):\n    return a",
        "new.f()",
    ),
    "two arguments for many": (
        "def f(self, x=3, y=4):\n    return super().f(x, y)",
        "def f(self, *a):\n    return a",
        "new.f()",
    ),
    "many and one for many": (
        "def f(self, x=3, *y):\n    return super().f(x, *y)",
        "def f(self, *a):\n    return a",
        "new.f(1, 2)",
    ),
    "many for many of another name": (
        "def f(self, *y):\n    return super().f(*y)",
        "def f(self, *a):\n    return a",
        "new.f(1, 2)",
    ),
    "no argument for many": ("def f(self, *a):\n    return super().f()", "def f(self):\n    return 1", "new.f(1, 2)"),
    "keywords for many": (
        "def f(self, x=3, **k):\n    return super().f(y=x, **k)",
        "def f(self, **a):\n    return a",
        "new.f(z=2)",
    ),
    "one keyword for many": ("def f(self):\n    return super().f(y=1)", "def f(self, **a):\n    return a", "new.f()"),
    "a condition": ("a = 5", "if True:\n    a = 1\nelse:\n    a = 2", "new.a"),
    "an annotation without a value": ("x: float", "x: int = 8", "new.x"),
    "an annotation of a method": ("x: float", "def x(self):\n    return 1", "new.x()"),
    "an annotation of a property": ("x: float", "@property\ndef x(self):\n    return 1", "new.x"),
    "an annotation of a class": ("x: float", "class x:\n    y = 1", "new.x.y"),
    "an annotation of a name that a block binds": (
        "x: float",
        "with open('/dev/null') as x:\n    pass",
        "bool(new.x)",
    ),
    "a method that the parent binds twice": (
        "def x(self):\n    return 2",
        "def x(self):\n    return 1\nx = 3",
        "new.x()",
    ),
    "a method that a block of the parent binds again": (
        "@classmethod\ndef x(cls):\n    return 2",
        "@property\ndef x(self):\n    return 1\nif True:\n    x = 3",
        "new.x()",
    ),
    "an assignment repeated behind a change of its list": (
        "a = []\na.append(1)\na = []\na.append(2)",
        "a = 1",
        "new.a",
    ),
    "an assignment repeated behind a change of what it reads": ("b = 1\na = b\nb = 2\na = b", "c = 1", "new.a, new.b"),
    "an annotation below a value": ("y = 1", "x = 3\nx: int", "new.x"),
    "an annotation below two values": ("x2 = 1", "x = 3\nx: int = 4\nx: int", "new.x"),
    "an annotation below a value of the child": ("x = 3\nx: int", "x = 1", "new.x"),
    "two names, one of which the parent changes": ("a = b = 3", "a = 1\nb = []\nb.append(3)", "new.a, new.b"),
    "a method that the parent wraps": (
        "def x(self):\n    return 2",
        "def x(self):\n    return 1\nx = property(x)",
        "new.x()",
    ),
    "a method over an attribute": ("def x(self):\n    return 1", "x: int = 8", "new.x()"),
    "an attribute over a property": (
        "width = 3",
        "@property\ndef width(self):\n    return 1\n@width.setter\ndef width(self, value):\n    pass",
        "new.width",
    ),
    "registrations": (
        "def show(self, x):\n    return 'new'",
        "from functools import singledispatchmethod\n@singledispatchmethod\ndef show(self, x):\n    return 'old'\n"
        "@show.register\ndef _(self, x: int):\n    return 'int'\n@show.register\ndef _(self, x: str):\n    return 'str'",
        "new.show(1), new.show('')",
    ),
    "registrations of both": (
        "from functools import singledispatchmethod\n@singledispatchmethod\ndef show(self, x):\n    return 'new'\n"
        "@show.register\ndef _(self, x: int):\n    return 'int'\n@show.register\ndef _(self, x: list):\n    return 'list'",
        "from functools import singledispatchmethod\n@singledispatchmethod\ndef show(self, x):\n    return 'old'\n"
        "@show.register\ndef _(self, x: str) -> str:\n    'Doc.'\n    return 'str'",
        "new.show(1), new.show(''), new.show([]), new._.__doc__, new._.__annotations__",
    ),
    "an inner class": ("class Inner:\n    b = 2", "class Inner:\n    a = 1", "hasattr(new.Inner, 'a')"),
    "an attribute assigned twice in the child": ("a = 1\nb = a\na = 2", "a = 0", "new.a, new.b"),
    "a chain in a method": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = self.b = 2",
        "new.f(), new.a, new.b",
    ),
    "two on a line of a method": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1; self.b = 2",
        "new.f(), new.a, new.b",
    ),
    "a tuple in a method": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a, self.b = 1, 2",
        "new.f(), new.a, new.b",
    ),
    "two attributes by one assignment": (
        "def f(self):\n    super().f()\n    self.a = self.b = 5",
        "def f(self):\n    self.a = 1\n    self.b = 2",
        "new.f(), new.a, new.b",
    ),
    "an attribute that the parent counts up below": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1\n    self.a += 2",
        "new.f(), new.a",
    ),
    "an attribute that the parent loops with below": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1\n    for self.a in range(3):\n        pass",
        "new.f(), new.a",
    ),
    "an attribute in a tuple below": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1\n    self.a, self.b = 1, 2",
        "new.f(), new.a, new.b",
    ),
    "a list that the parent extends below": (
        "def f(self):\n    super().f()\n    self.a = [5]",
        "def f(self):\n    self.a = [1]\n    self.a.append(2)",
        "new.f(), new.a",
    ),
    "an assignment repeated behind a change": (
        "def f(self):\n    super().f()\n    self.a = [1, 2]",
        "def f(self):\n    self.a = [1, 2]\n    del self.a[0]",
        "new.f(), new.a",
    ),
    "an override that reads a local name": (
        "def f(self):\n    super().f()\n    t = 3\n    self.a = t",
        "def f(self):\n    self.a = 1",
        "new.f(), new.a",
    ),
    "an override that reads a new attribute": (
        "def f(self):\n    super().f()\n    self.t = 3\n    self.a = self.t",
        "def f(self):\n    self.a = 1",
        "new.f(), new.a",
    ),
    "an override that reads its own target": (
        "def f(self):\n    super().f()\n    self.a = self.a * 2",
        "def f(self):\n    self.a = 4",
        "new.f(), new.a",
    ),
    "two overrides of one target": (
        "def f(self):\n    super().f()\n    self.a = 1\n    self.b = self.a\n    self.a = 2",
        "def f(self):\n    self.a = 4",
        "new.f(), new.a, new.b",
    ),
    "an attribute that is read before it is overridden": (
        "def f(self):\n    super().f()\n    self.w = self.a\n    self.a = 2",
        "def f(self):\n    self.a = 4",
        "new.f(), new.a, new.w",
    ),
    "an attribute deleted that the parent reads below": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = 4\n    self.b = self.a",
        "new.f(), hasattr(new, 'a'), new.b",
    ),
    "an attribute deleted that the parent counts up below": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = 4\n    self.a += 1",
        "new.f(), hasattr(new, 'a')",
    ),
    "an attribute deleted that a block of the parent sets again": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = self.b = 4\n    try:\n        pass\n    finally:\n        self.a = 5",
        "new.f(), hasattr(new, 'a'), new.b",
    ),
    "an attribute deleted that a block of the parent may set": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = 4\n    if self.a > 9:\n        self.a = 5",
        "new.f(), hasattr(new, 'a')",
    ),
    "an item deleted, then all of it": (
        "def f(self):\n    super().f()\n    del self.a[0]\n    self.a = [4]",
        "def f(self):\n    self.a = [1]",
        "new.f(), new.a",
    ),
    "an annotation alone": (
        "def f(self):\n    super().f()\n    self.a: int",
        "def f(self):\n    self.a = 1",
        "new.f(), new.a",
    ),
    "an item deleted": (
        "def f(self):\n    super().f()\n    del self.a[0]",
        "def f(self):\n    self.a = [1, 2]",
        "new.f(), new.a",
    ),
    "lines behind a return": (
        "def f(self, x):\n    super().f(x)\n    return x + 1",
        "def f(self, x):\n    self.x = x\n    return self.x * 2",
        "new.f(3), new.x",
    ),
    "lines behind a returned super call": (
        "def f(self, x):\n    return super().f(x)\n    return 0",
        "def f(self, x):\n    return x * 2",
        "new.f(3)",
    ),
    "another name of a parameter": (
        "def f(self, y):\n    return super().f(y)",
        "def f(self, x):\n    return x",
        "new.f(3)",
    ),
    "an argument that the child does not have": (
        "def f(self, x):\n    return super().f(x, scale=3)",
        "def f(self, x, scale=1):\n    return x * scale",
        "new.f(2)",
    ),
    "a default that the child does not have": (
        "def f(self, x):\n    return super().f(x)",
        "def f(self, x, scale=4, *more, **others):\n    return x * scale, more, others",
        "new.f(2)",
    ),
    "a function that takes a name from the same method": (
        "def f(self, x):\n    h = 1\n    def g(): return h + x\n    super().f(x)\n    h = 3\n    self.a = g()",
        "def f(self, x):\n    k = 5\n    self.g = lambda: k + x\n    k = 6",
        "new.f(3), new.a, new.g()",
    ),
    "a function below the parent's lines": (
        "def f(self, x):\n    super().f(x)\n    h = 1\n    g = lambda: h\n    self.a = g()",
        "def f(self, x):\n    for h in (1, 2):\n        self.b = h",
        "new.f(3), new.a, new.b",
    ),
    "a function with a parameter of that name": (
        "def f(self, x):\n    g = lambda x, *y, **z: (x, y, z)\n    def h(x): return x\n    super().f(x)\n    self.a = g(1), h(2)",
        "def f(self, x):\n    x = y = z = 5\n    self.b = x, y, z",
        "new.f(3), new.a, new.b",
    ),
    "a default of that name": (
        "def f(self, x):\n    g = lambda y=x: y\n    super().f(x)\n    self.a = g()",
        "def f(self, x):\n    x = 5\n    self.b = x",
        "new.f(3), new.a",
    ),
    "generators that are used up at once": (
        "def f(self, x):\n    self.a = sum(x + i for i in (1, 2)), [x for _ in (1, 2)], sorted((1, 2), key=lambda i: -i * x)\n"
        "    g = (i for i in (x, x))\n    super().f(x)\n    self.c = list(g)",
        "def f(self, x):\n    x = -5\n    self.b = x",
        "new.f(3), new.a, new.c",
    ),
    "an attribute that a function reads": (
        "def f(self, x):\n    self.a = 1\n    g = lambda: self.a\n    super().f(x)\n    self.c = g()",
        "def f(self, x):\n    self.a = x",
        "new.f(3), new.c",
    ),
    "the same assignment in another method of the parent": (
        "def f(self):\n    super().f()\n    self.a = 2\ndef g(self):\n    return super().g()",
        "def f(self):\n    self.a = 1\ndef g(self):\n    self.a = 2",
        "new.f(), new.g(), new.a",
    ),
    "a pattern that binds what it reads": (
        "def f(self, x):\n    super().f(x)\n    match x:\n        case [y]:\n            self.a = y",
        "def f(self, x):\n    self.a = 1",
        "new.f([3]), new.a",
    ),
    "another name of the instance": (
        "def f(this, x):\n    this.a = 1\n    return super().f(x)",
        "def f(self, x):\n    return self.a + x",
        "new.f(2)",
    ),
}


@pytest.mark.parametrize(("child", "parent", "expression"), ALIKE.values(), ids=ALIKE)
def test_a_merged_class_does_what_inheritance_does(child: str, parent: str, expression: str) -> None:
    inherited, merged = run(child or "pass", parent, expression)
    assert merged == inherited


@pytest.mark.parametrize(
    ("child", "parent", "lines"),
    [
        ("", "a = 1\nb = 2\na = 3", ["b = 2", "a = 3"]),
        ("", "a = 1\nb = 2\na = 1", ["a = 1", "b = 2"]),  # the same once more
        ("", "a = 1\nb = a\na = 3", ["a = 1", "b = a", "a = 3"]),
        ("", "a = b = 1\na = 3", ["a = b = 1", "a = 3"]),
        ("", "a = 1\nif True:\n    a = 3", ["a = 1", "if True:", "    a = 3"]),
        ("", "a = next(IDS)\na = next(IDS)", ["a = next(IDS)", "a = next(IDS)"]),  # which counts
        ("a = 1\nc = 4\na = 3", "a = 2\nb = 2", ["a = 3", "b = 2", "c = 4"]),
    ],
)
def test_attributes_that_are_assigned_again_stand_once(child: str, parent: str, lines: list[str]) -> None:
    assert [one[4:] for one in merge(child or "pass", parent).splitlines()[1:]] == lines


@pytest.mark.parametrize(
    "change",
    [
        "self.a.x = 5",
        "self.a.x += 5",
        "self.a.y.insert(0, 2)",
        "self.a.y[0] = 5",
        "del self.a.y[0]",
        "self.a.y[1].z = 5",
        "setattr(self.a, 'x', 5)",
        "setattr(self.a, *('x', 5))",
        "self.a.y[:1] = [3, 4]",
        "for self.a.x in (7,):\n        pass",
        "if c:\n        self.a.x = 8",
        "c.append(3)",
        "c[0] = 7",
        "list.append(c, 4)",
        "c = c + [1]\n    c.append(2)",
    ],
)
def test_what_a_line_changes_is_changed_before_the_next_line_reads_it(change: str) -> None:
    """The child's last line would take the place of the parent's, above the change."""
    parent = "def f(self, c):\n    self.a = type('Box', (), {'x': 1, 'y': [1, lambda: 1]})\n    self.b = 0\n    self.late = 1"
    child = f"def f(self, c):\n    super().f(c)\n    {change}\n    self.b = vars(self.a)['x'], self.a.y[:-1], dict(vars(self.a.y[-1])), [*c]"
    inherited, merged = run(child, parent, "new.f([9]) or new.b")
    assert merged == inherited


@pytest.mark.parametrize("number", [1, ROUNDS - 2, ROUNDS, ROUNDS + 3])
def test_lines_that_each_hold_the_next_one_back(number: int) -> None:
    parent = "def f(self):\n    self.a0 = 0\n" + "".join(f"    self.a{i} = {i}\n" for i in range(1, number + 1))
    lines = "".join(f"    self.a{i} = self.a{i - 1} + 1\n" for i in range(1, number + 1))
    child = f"def f(self):\n    super().f()\n    self.t = 5\n    self.a0 = self.t\n{lines}"
    inherited, merged = run(child, parent, "new.f() or vars(new)")
    assert merged == inherited


REFUSED = {
    "a return in a condition": (
        "def f(self, x):\n    super().f(x)\n    self.done = True",
        "def f(self, x):\n    if x:\n        return 1\n    self.x = x",
    ),
    "a coroutine in a plain method": (
        "def f(self):\n    return super().f()",
        "async def f(self):\n    return await self.g()",
    ),
    "a generator as a statement": ("def f(self):\n    super().f()", "def f(self):\n    yield 1"),
    "a local name for a function of the module": (
        "def f(self, x, apply=None):\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
    ),
    "a parameter without a value": ("def f(self):\n    return super().f()", "def f(self, x):\n    return x"),
    "unknown arguments": ("def f(self, *a):\n    return super().f(*a)", "def f(self, x):\n    return x"),
    "a target that is assigned again and again": (
        "def f(self, x):\n    super().f(x)\n    x = x + 1\n    return x",
        "def f(self, x):\n    x = x * 2\n    x = x * 3\n    return x",
    ),
    "a private attribute of both": (
        "def f(self):\n    self.__a = 1\n    return super().f()",
        "def f(self):\n    self.__a = 2\n    return self.__a",
    ),
    "a private method of both": (
        "def __twice(self):\n    return 1",
        "def f(self):\n    return self.__twice()\ndef __twice(self):\n    return 2",
    ),
    "an assignment that a return of the parent would skip": (
        "def f(self, x):\n    super().f(x)\n    self.a = 2",
        "def f(self, x):\n    if x:\n        return\n    self.a = 1",
    ),
    "a private name of the parent": ("def f(self):\n    return self._OldMLP__a", "def g(self):\n    self.__a = 2"),
    "slots of both": ("\n__slots__ = ('b',)", "__slots__ = ('a',)"),
    "a local name of both": (
        "def f(self, x):\n    h = x\n    super().f(x)\n    self.a = h",
        "def f(self, x):\n    h = 1\n    self.b = h",
    ),
    "a builtin behind a local name of the parent": (
        "def f(self, x):\n    super().f(x)\n    return max(x, 2)",
        "def f(self, x):\n    max = 1\n    self.b = max",
    ),
    "a builtin before a local name of the parent": (
        "def f(self, x):\n    y = max(x, 2)\n    super().f(x)\n    return y",
        "def f(self, x):\n    max = 1\n    self.b = max",
    ),
    "a generator over a plain method": (
        "def f(self):\n    yield 1\n    return super().f()",
        "def f(self):\n    return 1",
    ),
    "a function for a function of the module": (
        "def f(self, x):\n    def apply(y):\n        return y\n    self.g = apply\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
    ),
    "a class for a function of the module": (
        "def f(self, x):\n    class apply:\n        pass\n    self.g = apply\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
    ),
    "an import for a module of the module": (
        "def f(self, x):\n    import apply.fast\n    self.g = apply\n    return super().f(x)",
        "def f(self, x):\n    return apply.slow(x)",
    ),
    "an error for a function of the module": (
        "def f(self, x):\n    try:\n        x()\n    except OSError as apply:\n        pass\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
    ),
    "the rest of a sequence for a function of the module": (
        "def f(self, x):\n    match x:\n        case [1, *apply]:\n            pass\n    return super().f(x)",
        "def f(self, x):\n    return apply(x)",
    ),
    "a function of the module beside an inner function's parameter": (
        "def f(self, x):\n    apply = x\n    self.h = apply\n    return super().f(x)",
        "def f(self, x):\n    self.g = lambda apply: apply\n    return apply(x)",
    ),
    "a local name for a global one that the parent sets": (
        "def f(self, x):\n    state = x + 1\n    self.h = state\n    super().f(x)",
        "def f(self, x):\n    global state\n    state = x",
    ),
    "a global name for a local one of the parent": (
        "def f(self, x):\n    global state\n    state = x\n    super().f(x)",
        "def f(self, x):\n    state = x + 1\n    self.x = state",
    ),
    "a name that is bound below": (
        "def f(self, x):\n    super().f(x)\n    self.a = limit",
        "def f(self, x):\n    self.a = 1\n    limit = 2\n    self.b = limit",
    ),
    "the parent's name": ("def f(self):\n    return OldMLP.f(self)", "def f(self):\n    return 1"),
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
    assert [(code, lines[line - 1].strip()) for code, line, _ in found] == [("MC204", below or above)]


@pytest.mark.parametrize(("child", "parent"), REFUSED.values(), ids=REFUSED)
def test_what_one_class_cannot_say_is_an_error_with_its_place(child: str, parent: str) -> None:
    ((code, line, _),) = findings(child, parent)
    assert code == "MC204"
    assert line > 1


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
    "a hook of the parent": ("def __init_subclass__(cls):\n    cls.tag = 1", "a = 1", ["MC204"]),
    "a hook that the child has too": (
        "def __init_subclass__(cls):\n    cls.tag = 1",
        "def __init_subclass__(cls):\n    pass",
        ["MC204"],
    ),
    "the parent as `__class__`": ("def f(self):\n    return __class__.a", "a = 2", ["MC204"]),
    "`__class__` in a method that is replaced": (
        "def f(self):\n    return __class__.a",
        "def f(self):\n    return 1",
        [],
    ),
    "`__class__` in a method that is extended": (
        "def f(self):\n    return __class__.a",
        "def f(self):\n    return super().f()",
        ["MC204"],
    ),
    "`super` of `__class__`": ("def f(self):\n    return [super(__class__, self).f() for _ in 'a']", "a = 2", []),
    "the class of the instance": ("def f(self):\n    return self.__class__.a", "a = 2", []),
}


@pytest.mark.parametrize(("parent", "child", "codes"), MAKING.values(), ids=MAKING)
def test_what_python_does_for_two_classes(parent: str, child: str, codes: list[str]) -> None:
    assert [code for code, _, _ in findings(child, parent)] == codes


@pytest.mark.parametrize(("bases", "codes"), [("metaclass=Meta", ["MC204"]), ("abc.ABC, metaclass=abc.ABCMeta", [])])
def test_metaclasses(bases: str, codes: list[str]) -> None:
    assert [code for code, _, _ in findings("a = 1", "b = 2", bases)] == codes


@pytest.mark.parametrize(("child", "parent"), [("__slots__ = ('b',)", "a = 2"), ("a = 1", "__slots__ = ('b',)")])
def test_slots_of_one_class_alone_would_bind_the_other_too(child: str, parent: str) -> None:
    assert [code for code, _, _ in findings(child, parent, bases="object")] == ["MC204"]
    assert not findings(child, parent), "instances of `nn.Module` take any attribute"


TOLD = {
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


def test_a_coroutine_takes_the_place_of_one() -> None:
    child = "async def f(self):\n    return await super().f()"
    assert "return await self.g()" in merge(child, "async def f(self):\n    return await self.g()")


@pytest.mark.parametrize("indentation", ["\t", "  ", "        "])
def test_any_indentation_becomes_four_spaces(indentation: str) -> None:
    child = child_text("def f(self):\n    if 1:\n        a = 1\n    return super().f()").replace("    ", indentation)
    parent = class_text("class NewMLP:", "def f(self):\n    return [\n        1\n    ]")
    text = merge_class(child, parent, "NewMLP", "OldMLP", NAMES, {}, {}, SETTINGS).text
    body = "        if 1:\n            a = 1\n        return [\n            1\n        ]\n"
    assert text == f"class NewMLP:\n    def f(self):\n{body}"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are of Python 3.12")
def test_type_parameters_stay() -> None:
    child = (
        "class NewMLP[K](OldMLP):\n    def f[S: (int, str)](self, y=1, **super_kwargs):\n        return super().f(y)\n"
    )
    parent = "class NewMLP[T: (int, str)](nn.Module):\n    def f(self, x: T) -> T:\n        return x\n"
    text = merge_class(child, parent, "NewMLP", "OldMLP", NAMES, {}, {}, SETTINGS).text
    assert text.startswith("class NewMLP[T: (int, str), K](nn.Module):\n")
    assert "def f[S: (int, str)](self, x: T, y=1, ) -> T:" in text
