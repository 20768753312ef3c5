"""The order of the definitions of a generated file."""

from __future__ import annotations

import pytest

from modular_converter.convert.inline.collect import (
    GeneratedDefinition,
    GeneratedFile,
    with_bases_first,
)
from modular_converter.findings import Origin
from modular_converter.model.lexer import identifiers
from modular_converter.model.module import Role


def definition(text: str) -> GeneratedDefinition:
    words = text.replace("(", " ").replace(":", " ").split()
    name, role = (words[words.index("class") + 1], Role.CLASS) if "class" in words else (words[0], Role.ASSIGNMENT)
    return GeneratedDefinition(name, role, "", text, identifiers(text), Origin("m.py", 1, name, "copied"))


@pytest.mark.parametrize(
    ("texts", "order"),
    [
        (["class A: pass", "class B: pass"], "AB"),
        (["class A(B): pass", "class B: pass"], "BA"),
        (["class A(D, C): pass", "class B: pass", "class C(D): pass", "class D: pass"], "DCAB"),
        (["@B\nclass A: pass", "class B: pass"], "BA"),
        (["class A(\n    B,  # base\n): pass", "class B: pass"], "BA"),
        (["class A(list[B]):  # of B\n    pass", "class B: pass"], "BA"),
        (["class A:\n    def f(self): return B()", "class B(A): pass"], "AB"),
        (["class A(B): pass", "class B(A): pass"], "BA"),
        (["A = B", "class B: pass"], "BA"),
        (["A = B()", "class B:\n    x = C", "class C: pass"], "CBA"),
        (["A = B()", "class B:\n    def __init__(self): self.x = C()", "class C: pass"], "BCA"),
        (["A = B", "class B:\n    def __init__(self): self.x = C()", "class C: pass"], "BAC"),
        (["A = lambda: B", "class B: pass"], "AB"),
        (["class A:\n    x = [B for _ in C]", "class B: pass", "C = 1"], "BCA"),
        (["class A:\n    def f(self): return [B() for _ in C]", "class B: pass", "C = 1"], "ABC"),
    ],
)
def test_a_class_stands_behind_its_bases(texts: list[str], order: str) -> None:
    assert "".join(one.name for one in with_bases_first(list(map(definition, texts)))) == order


def test_what_opens_a_file() -> None:
    file = GeneratedFile("modeling", "modeling_new.py", ("logger", "missing", "FIRST"))
    for one in map(definition, ["A = 1", "FIRST = 2", "class C(B): pass", "logger = 3", "class B: pass"]):
        file.definitions[one.name] = one
    assert [one.name for one in file.ordered] == ["logger", "FIRST", "A", "B", "C"]
