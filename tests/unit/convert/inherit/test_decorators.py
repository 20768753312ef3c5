"""The decorators of an override: those that it takes from the parent, and those that it lacks."""

from __future__ import annotations

import textwrap

import pytest

from modular_converter.convert.inherit.rewrite import merged_header
from tests.unit.convert.inherit.merging import findings


DECORATORS = {
    "a method over a property": ("def a(self): ...", "@property\ndef a(self): ...", ["MC335"]),
    "a property over a property": ("@property\ndef a(self): ...", "@property\ndef a(self): ...", []),
    "a plain method over a property": ("@no_inherit_decorator\ndef a(self): ...", "@property\ndef a(self): ...", []),
    "a method with parameters over a property": ("def a(self, x): ...", "@property\ndef a(self): ...", []),
    "a method over one with a cache": ("def a(self): ...", "@functools.lru_cache(2)\ndef a(self): ...", ["MC335"]),
    "a method over one without gradients": ("def a(self): ...", "@torch.no_grad()\ndef a(self): ...", []),
    "the body of one with a cache": ("def a(self): return super().a()", "@cache\ndef a(self): ...", []),
    "other decorators, with the body": ("@b\ndef a(self): super().a()", "@c\n@d(1)\ndef a(self): ...", ["MC335"] * 2),
    "the same decorator, with the body": ("@x.c(1)\ndef a(self): super().a()", "@c(1)\ndef a(self): ...", []),
    "other arguments, with the body": ("@c(2)\ndef a(self): super().a()", "@c(1)\ndef a(self): ...", ["MC335"]),
    "other texts, with the body": ("@c('an x')\ndef a(self): super().a()", "@c('a y', z='')\ndef a(self): ...", []),
    "another word, with the body": ("@c('x')\ndef a(self): super().a()", "@c('y')\ndef a(self): ...", ["MC335"]),
    "other decorators, without the body": ("@b\ndef a(self): ...", "@c\ndef a(self): ...", []),
    "no decorators, with the body": (
        "@no_inherit_decorator\ndef a(self): super().a()",
        "@c\ndef a(self): ...",
        [],
    ),
    "a decorator without effect": ("@b\ndef a(self): super().a()", "@abc.abstractmethod\ndef a(self): ...", []),
}


@pytest.mark.parametrize(("child", "parent", "codes"), DECORATORS.values(), ids=DECORATORS)
def test_decorators_of_methods(child: str, parent: str, codes: list[str]) -> None:
    assert [code for code, *_ in findings(child, parent)] == codes


@pytest.mark.parametrize(("own", "wanted"), [("", "@c\n# of c\n"), ("@b\n# of b\n", "@c\n@b\n# of b\n")])
def test_a_comment_below_decorators_stays_below_the_last(own: str, wanted: str) -> None:
    methods = (f"{own}def f(self, *args, **kwargs):\n", "@c\n# of c\ndef f(self, x):\n")
    text, _ = merged_header(*(textwrap.indent(one, "    ") for one in methods), [True], True)
    assert textwrap.dedent(text).startswith(f"{wanted}def f(")
