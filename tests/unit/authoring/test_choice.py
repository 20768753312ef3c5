"""Parents are found where docstrings differ, and chosen by what they cost next to the choice for the whole model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from modular_converter.authoring.library_index import forms_of_parts
from modular_converter.authoring.sources import cheapest_first


def _placed(model: str, lines: int, prefix: str = "New", year: int = 2020) -> Any:
    source = SimpleNamespace(path=model, prefix=prefix, model=model, year=year)
    return SimpleNamespace(source=source, heir=SimpleNamespace(lines=lines))


@pytest.mark.parametrize(
    ("some", "first"),
    [
        ([_placed("used", 52), _placed("other", 51)], "used"),  # one more neighbour costs more than a line
        ([_placed("used", 72), _placed("other", 51)], "other"),
        ([_placed("used", 60, prefix="NewText"), _placed("used", 72), _placed("other", 80)], "used"),
        ([_placed("used", 54), _placed("other", 51, year=2022)], "used"),
        ([_placed("used", 54), _placed("wanted", 60)], "wanted"),
    ],
)
def test_the_cheapest_parent_next_to_the_others(some: list[Any], first: str) -> None:
    ranked = cheapest_first(some, {"NewModel": _placed("used", 10)}, {"wanted"}, 2021)
    assert (ranked[0].source.model, ranked[0].source.prefix) == (first, "New")


def test_a_body_is_found_below_another_docstring() -> None:
    text = 'class A(B):\n    def f(self, x):\n        """{}"""\n        y = self.g(x)\n        return y * x\n'
    one, other = (dict(forms_of_parts(some, some)) for some in (text.format("One."), text.format("Two.")))
    (body,) = one.keys() & other.keys()
    assert one[body] == 2 and "return" in body
