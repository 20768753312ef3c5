"""Decorators and defaults that an override takes from the parent's method read the parent's names."""

from __future__ import annotations

import pytest

from tests.unit.convert.inherit.merging import findings


TAKEN = {
    "a decorator": ("n = 3\ndef f(self): ...", "n = 2\n@times(n)\ndef f(self): ...", 3),
    "a decorator of its own": ("n = 3\n@times(n)\ndef f(self): ...", "n = 2\n@times(n)\ndef f(self): ...", None),
    "a decorator that it does not take": (
        "n = 3\n@no_inherit_decorator\ndef f(self): ...",
        "n = 2\n@times(n)\ndef f(self): ...",
        None,
    ),
    "a decorator that reads what stays": ("m = 3\ndef f(self): ...", "n = 2\n@times(n)\ndef f(self): ...", None),
    "a default": ("n = 3\ndef f(self, **super_kwargs): ...", "n = 2\ndef f(self, x=n): ...", 3),
    "a keyword's default": ("n = 3\ndef f(self, **super_kwargs): ...", "n = 2\ndef f(self, *, x=n): ...", 3),
    "a default that it does not take": ("n = 3\ndef f(self, **kwargs): ...", "n = 2\ndef f(self, x=n): ...", None),
    "a setter": (
        "@property\ndef f(self): ...\n@f.setter\ndef f(self, v): ...",
        "@property\ndef f(self): ...\n@f.setter\ndef f(self, v): ...",
        None,
    ),
}


@pytest.mark.parametrize(("child", "parent", "line"), TAKEN.values(), ids=TAKEN)
def test_what_an_override_takes_from_the_parents_header(child: str, parent: str, line: int | None) -> None:
    found = [(code, line) for code, line, _ in findings(child, parent, "X")]
    assert found == ([("MC209", line)] if line else [])
