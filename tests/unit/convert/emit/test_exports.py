"""Which file a class goes to, and what each file exports."""

from __future__ import annotations

from modular_converter.convert.emit.exports import names_in_strings, on_one_line, render_all
from modular_converter.model.index import index_module


def test_exports() -> None:
    assert index_module('__all__ = ["A"]\n', "m.py").exported == ("A",)
    assert index_module("A = 1\n", "m.py").exported == ()
    assert render_all(["A", "B"]) == '__all__ = ["A", "B"]\n'


def test_the_class_names_in_a_statement() -> None:
    text = "__getattr__ = old(\n    {'Old': \"New\", 'lower': 1},\n)"
    assert names_in_strings(text) == ["Old", "New"]
    assert on_one_line(text) == "__getattr__ = old({'Old': 'New', 'lower': 1})\n"
