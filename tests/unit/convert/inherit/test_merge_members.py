"""Members of a class laid over the parent's: compared with Python's own inheritance by running both."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from modular_converter.convert.inherit.build import merge_class
from modular_converter.convert.inherit.super_calls import ROUNDS
from tests.unit.convert.inherit.alike_classes import ALIKE
from tests.unit.convert.inherit.merging import NAMES, SETTINGS, child_text, class_text, findings, merge


def run(child: str, parent: str, expression: str) -> tuple[Any, Any]:
    """The value of an expression over `new`, an instance of the child: with Python's inheritance, and as merged."""
    inherited: dict[str, Any] = {}
    exec(class_text("class OldMLP:", parent) + child_text(child), inherited)
    merged: dict[str, Any] = {}
    exec(merge(child, parent, bases="object"), merged)
    return tuple(eval(expression, {**scope, "new": scope["NewMLP"]()}) for scope in (inherited, merged))  # type: ignore[return-value]


@pytest.mark.parametrize(("child", "parent", "expression"), ALIKE.values(), ids=ALIKE)
def test_a_merged_class_does_what_inheritance_does(child: str, parent: str, expression: str) -> None:
    inherited, merged = run(child or "pass", parent, expression)
    assert merged == inherited


@pytest.mark.parametrize("child", ["'Mine.'", "__doc__ = 'Mine.'", "pass", "'Mine.'\ndef f(self): ..."])
def test_the_docstring_of_a_class_counts_whatever_the_parent_assigns(child: str) -> None:
    inherited, merged = run(child, "'Theirs.'\n__doc__ = 'Assigned.'\nb = 2", "new.__doc__, new.b")
    assert merged == (inherited if child != "pass" else ("Theirs.", 2))


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


@pytest.mark.parametrize(
    "change",
    [
        "self.__dict__.update(a=9)",
        "self.__dict__['a'] = 9",
        "vars(self).update(a=9)",
        "object.__setattr__(self, 'a', 9)",
        "self.__setattr__('a', 9)",
        "super().__setattr__('a', 9)",
        "setattr(self, 'a', 9)",
        "self.c = (lambda one: vars(one).update(a=9))(self)",
        "self.put_all()",
        "h = self.h\n    h.append(9)",
        "h = self.h[:1] or self.h\n    (k := h).clear()",
        "for one in self.boxes:\n        one.append(9)",
    ],
)
def test_what_a_line_may_change_without_a_word_is_changed_before_the_next_line_reads_it(change: str) -> None:
    """Through the dictionary of attributes, code that gets the instance, a method of a base, or another name."""
    parent = "def __init__(self):\n    self.a = 1\n    self.h = [1]\n    self.boxes = [[2]]\n    self.b = self.a"
    child = f"def put_all(self):\n    vars(self)['a'] = 9\ndef __init__(self):\n    super().__init__()\n    {change}\n    self.b = self.a, [*self.h], [*self.boxes[0]]\n    self.a = self.b, 2"
    inherited, merged = run(child, parent, "vars(new)")
    assert merged == inherited


@pytest.mark.parametrize("value", ["dict(vars(self))", "[*self.__dict__]", "count(self)", "self.size()"])
def test_a_line_that_may_read_any_attribute_reads_those_that_are_set_below_its_place(value: str) -> None:
    parent = "def __init__(self):\n    self.a = 1\n    self.b = 0\n    self.c = 2"
    child = f"def size(self):\n    return len(vars(self))\ndef __init__(self):\n    super().__init__()\n    count = lambda one: len(vars(one))\n    self.b = {value}"
    inherited, merged = run(child, parent, "vars(new)")
    assert merged == inherited


def test_an_attribute_is_set_again_behind_a_change_under_another_name() -> None:
    parent = "def __init__(self):\n    self.h = [1]"
    child = "def __init__(self):\n    super().__init__()\n    h = self.h\n    h.append(9)\n    self.h = [1]"
    inherited, merged = run(child, parent, "vars(new)")
    assert merged == inherited == {"h": [1]}


def test_a_method_of_a_base_may_set_any_attribute() -> None:
    child = "def __init__(self):\n    super().__init__()\n    self.put('a', 9)\n    self.b = self.a"
    text = merge(child, "def __init__(self):\n    self.a = 1\n    self.b = self.a\n    self.c = 2")
    assert text.endswith("self.c = 2\n        self.put('a', 9)\n        self.b = self.a\n")


def test_a_removed_attribute_that_a_method_of_the_parent_sets_again_is_deleted_behind_it() -> None:
    parent = "def __init__(self):\n    self.a = 1\n    self.fill()\ndef fill(self):\n    self.a = 2"
    inherited, merged = run("def __init__(self):\n    super().__init__()\n    del self.a", parent, "vars(new)")
    assert merged == inherited == {}


@pytest.mark.parametrize("line", ["self.post_init()", "self.a = 1", "self.h.append(1)"])
def test_a_line_that_the_parent_has_behind_a_return_is_needed(line: str) -> None:
    child = f"def __init__(self, x):\n    super().__init__(x)\n    {line}"
    parent = f"def __init__(self, x):\n    self.h = []\n    if x:\n        return\n    {line}"
    assert [(code, at) for code, at, _ in findings(child, parent)] == [("MC204", 4)]


def test_a_property_that_is_set_to_itself_is_not_removed() -> None:
    parent = "def __init__(self):\n    self.a = 1\n@property\ndef a(self):\n    return self._a * 2\n@a.setter\ndef a(self, v):\n    self._a = v + 1"
    inherited, merged = run("def __init__(self):\n    super().__init__()\n    self.a = self.a", parent, "vars(new)")
    assert merged == inherited


@pytest.mark.parametrize("number", [1, ROUNDS - 2, ROUNDS, ROUNDS + 3])
def test_lines_that_each_hold_the_next_one_back(number: int) -> None:
    parent = "def f(self):\n    self.a0 = 0\n" + "".join(f"    self.a{i} = {i}\n" for i in range(1, number + 1))
    lines = "".join(f"    self.a{i} = self.a{i - 1} + 1\n" for i in range(1, number + 1))
    child = f"def f(self):\n    super().f()\n    self.t = 5\n    self.a0 = self.t\n{lines}"
    inherited, merged = run(child, parent, "new.f() or vars(new)")
    assert merged == inherited


def test_a_coroutine_takes_the_place_of_one() -> None:
    child = "async def f(self):\n    return await super().f()"
    assert "return await self.g()" in merge(child, "async def f(self):\n    return await self.g()")


@pytest.mark.parametrize("indentation", ["\t", "  ", "        "])
def test_any_indentation_becomes_four_spaces(indentation: str) -> None:
    child = child_text("def f(self):\n    if 1:\n        a = 1\n    return super().f()").replace("    ", indentation)
    parent = class_text("class NewMLP:", "def f(self):\n    return [\n        1\n    ]")
    text = merge_class(child, parent, "NewMLP", "OldMLP", NAMES, SETTINGS).text
    body = "        if 1:\n            a = 1\n        return [\n            1\n        ]\n"
    assert text == f"class NewMLP:\n    def f(self):\n{body}"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are of Python 3.12")
def test_type_parameters_stay() -> None:
    child = (
        "class NewMLP[K](OldMLP):\n    def f[S: (int, str)](self, y=1, **super_kwargs):\n        return super().f(y)\n"
    )
    parent = "class NewMLP[T: (int, str)](nn.Module):\n    def f(self, x: T) -> T:\n        return x\n"
    text = merge_class(child, parent, "NewMLP", "OldMLP", NAMES, SETTINGS).text
    assert text.startswith("class NewMLP[T: (int, str), K](nn.Module):\n")
    assert "def f[S: (int, str)](self, x: T, y=1, ) -> T:" in text
