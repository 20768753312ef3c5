"""Which file a class goes to, and what each file exports."""

from __future__ import annotations

from modular_converter.convert.emit.exports import names_in_strings, on_one_line, render_all
from modular_converter.convert.source.exports import exported_names
from modular_converter.convert.source.index import index_module


def test_exports() -> None:
    (statement,) = index_module('__all__ = [\n    "A",\n    "B",\n]\n', "m.py").statements
    assert exported_names(statement) == ["A", "B"]
    assert render_all(["A", "B"]) == '__all__ = ["A", "B"]\n'
    assert exported_names(None) == []
    assert exported_names(index_module("__all__ = names()\n", "m.py").statements[0]) == []
    mixed = '__all__ = ["A", NAME, 3, *others, b"C"] + ("D",) + more\n'
    assert exported_names(index_module(mixed, "m.py").statements[0]) == ["A", "D"]


def test_the_class_names_in_a_statement() -> None:
    text = "__getattr__ = old(\n    {'Old': \"New\", 'lower': 1},\n)"
    assert names_in_strings(text) == ["Old", "New"]
    assert on_one_line(text) == "__getattr__ = old({'Old': 'New', 'lower': 1})\n"
