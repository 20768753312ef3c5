"""The measure of the tests is itself measured: each change gives a text that parses and does something else."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest


PATH = pathlib.Path(__file__).parents[2] / "utils" / "mutate_code.py"
SPEC = importlib.util.spec_from_file_location("mutate_code", PATH)
mutate_code = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = mutate_code  # dataclasses look their module up
SPEC.loader.exec_module(mutate_code)

TEXT = '''"""About."""


def f(a, b):
    """About."""
    total = 0
    while a < 3 and b:
        a += 1
        total = total if b else 5
    return total, True
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setattr(mutate_code, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(TEXT)
    return path


def test_each_kind_of_change_is_made_once_for_each_place(module):
    found = {str(mutate_code.mutant_at(*place)) for place in mutate_code.places(module)}
    assert {
        "module.py:6: total = 0 -> pass",
        "module.py:6: 0 -> 1",
        "module.py:7: while a < 3 and b: -> while not (a < 3 and b):",
        "module.py:7: a < 3 and b -> a < 3 or b",
        "module.py:7: a < 3 -> a >= 3",
        "module.py:8: a += 1 -> pass",
        "module.py:9: total if b else 5 -> total if not b else 5",
        "module.py:10: return (total, True) -> pass",
        "module.py:10: True -> False",
    } < found
    assert not any("About" in one for one in found)


def test_each_change_is_another_program(module):
    for place in mutate_code.places(module):
        text = mutate_code.mutant_at(*place).text
        compile(text, "<mutant>", "exec")
        assert text != mutate_code.ast.unparse(mutate_code.ast.parse(TEXT)) + "\n"


def test_the_tests_of_a_file_are_those_of_its_own_folder():
    def of(path):
        return mutate_code.tests_of(mutate_code.ROOT / "modular_converter" / path)

    assert of("parallel/solve/operators/views.py") == ("tests/parallel/solve",)
    assert of("parallel/solve/axes.py") == ("tests/parallel/solve",)
    assert of("parallel/api.py") == ("tests/parallel",)
    assert of("files/root.py") == ("tests/unit/files",)
