"""Faults of generated texts. Python itself is the oracle: what is called a fault fails when the text is imported."""

from __future__ import annotations

import itertools
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.convert.examine.faults import find_faults, top_level_names
from modular_converter.findings import Rule
from modular_converter.rules import base_classes, tool_errors


def kinds(text: str, beside: dict[str, str] | None = None) -> list[Rule]:
    def names_of(module: str) -> frozenset[str] | None:
        return top_level_names(beside[module]) if beside and module in beside else None

    return [fault.rule for fault in find_faults(text, lambda module: module.startswith("..other"), names_of)]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, *, x=1): ...",
        "def f():\n    await g()\n",
        "class A:\n    return 1\n",
        "def f():\n    nonlocal x\n",
        "def f(x=1, y): ...",
        "  x = 1\n",
        "x = 1\0",
        "for x in y:\n    pass\nbreak\n",
    ],
)
def test_texts_that_python_does_not_compile(text: str) -> None:
    assert kinds(text) == [tool_errors.INVALID_RESULT]


@pytest.mark.parametrize("text", ['x = "\\d"\n', 'x = 1 is 1\ny = "\\d"\nreturn\n'])
def test_warnings_of_a_strangers_text_are_not_ours(text: str, recwarn: pytest.WarningsRecorder) -> None:
    assert kinds(text) == [tool_errors.INVALID_RESULT] * text.count("return")
    assert not recwarn.list


CLASSES = "ABCD"


@st.composite
def hierarchies(draw: st.DrawFn) -> str:
    """Classes with any bases out of those before them, plain and generic ones."""
    lines = ["from typing import Generic, TypeVar", 'T = TypeVar("T")', "class Root: ..."]
    known = ["Root", "Generic[T]"]
    for name in CLASSES:
        bases = draw(st.lists(st.sampled_from(known), max_size=3))
        lines.append(f"class {name}({', '.join(bases)}): ...")
        known.append(name)
    return "\n".join(lines) + "\n"


@given(hierarchies())
def test_bases_have_an_order_where_python_finds_one(text: str) -> None:
    found = kinds(text)
    try:
        exec(compile(text, "<classes>", "exec"), vars(types.ModuleType("classes")))
    except TypeError:
        assert found or "Generic" in text  # what `Generic` alone forbids is left to Python
    else:
        assert found == []


def test_a_class_defined_twice_inherits_from_the_first() -> None:
    assert kinds("class A: ...\nclass A(A): ...\nclass B(A): ...\n") == []


@pytest.mark.parametrize(
    ("imported", "base"),
    [
        ("from ..other.modeling_other import Parent", "Parent"),
        ("from ..other import modeling_other", "modeling_other.Parent"),
        ("from ..other import modeling_other as m", "m.Parent"),
        ("from ..other.modeling_other import Parent as P", "P[int]"),
        ("from .. import other", "other.modeling_other.Parent"),
        ("from .. import other as o", "mixed(), o.modeling_other.Parent"),
        ("from ..other.modeling_other import Parent as P\nBase = P if fast else object", "Base"),
        ("from ..other import modeling_other as m\nif fast:\n    Base: type = mixed(m.Parent)", "Base"),
    ],
)
def test_bases_from_other_models(imported: str, base: str) -> None:
    assert kinds(f"{imported}\nclass Child({base}): ...\n") == [base_classes.FOREIGN_BASE]
    assert kinds(f"{imported}\nclass Child(dict): ...\n") == []


HIDDEN = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from collections.abc import Sequence\n"


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("def f(x: Sequence): ...\n", True),
        ("class A:\n    x: Sequence\n", True),
        ("class A(Sequence): ...\n", True),
        ("def f(x=Sequence): ...\n", True),
        ("def f() -> Sequence: ...\n", True),
        ("def f(*args: Sequence, **kwargs: int): ...\n", True),
        ('def f(x: "Sequence"): ...\n', False),
        ("def f(x):\n    y: Sequence = x\n", False),
        ("def f(x):\n    return Sequence\n", False),
        ("f = lambda x: Sequence\n", False),
    ],
)
def test_names_for_type_checkers_are_faults_where_python_reads_them(text: str, fails: bool) -> None:
    assert kinds(HIDDEN + text) == [tool_errors.TYPING_ONLY_NAME] * fails
    assert kinds("from __future__ import annotations\n" + HIDDEN + "def f(x: Sequence): ...\n") == []
    try:
        exec(compile(HIDDEN + text, "<text>", "exec", dont_inherit=True), {})
    except NameError:
        assert fails
    else:  # Python 3.14 reads annotations when they are asked for
        assert not fails or "annotations" in dir(itertools) or hasattr(types, "get_original_bases")


@pytest.mark.parametrize(
    ("sibling", "fails"),
    [
        ("class B: ...", True),
        ("class A: ...", False),
        ("try:\n    import x as A\nexcept ImportError:\n    pass\n", False),
        ("for A in (): pass", False),
        ("def __getattr__(name): ...", False),
        ("from .c import *", False),
        ("def f():\n    A = 1\n", True),
        ("x = [A for A in y]", True),
    ],
)
def test_imports_from_a_sibling(sibling: str, fails: bool) -> None:
    wanted = [tool_errors.MISSING_IN_SIBLING] * fails
    assert kinds("from .b import A\n", {"b": sibling}) == wanted
    assert kinds("def f():\n    from .b import A\n", {"b": sibling}) == wanted
    assert kinds("try:\n    from .b import A\nexcept ImportError:\n    A = None\n", {"b": sibling}) == []
    assert kinds("from .missing import A\n", {"b": sibling}) == []
