"""Which words of a model's file are its own."""

from __future__ import annotations

import pytest

from modular_converter.convert.inherit.rename_neighbours import OwnModels, WordUses, uses_of_words


WORD = "dial"
OWN = OwnModels(frozenset({"transformers"}), ("models",))


def uses(text: str) -> WordUses:
    return uses_of_words((text,), frozenset({WORD}), OWN)


@pytest.mark.parametrize(
    "text",
    [
        "def dial(): pass",
        "class dial: pass",
        "def f(dial): pass",
        "def f(*, dial=1): pass",
        "def f(**dial): pass",
        "f = lambda dial: 1",
        "dial: int = 1",
        "self.dial = 1",
        "self.dial += 1",
        "self.dial: int",
        "del self.dial",
        "for x.dial in y: pass",
        "with a as dial: pass",
        "[dial for dial in x]",
        "(dial := 1)",
        "from .other_dia import dial",
        "def f():\n    from .dial import x",
        "from torch import x as dial",
        "try: pass\nexcept E as dial: pass",
        "match x:\n    case [*dial]: pass",
        "match x:\n    case {'a': dial}: pass",
        "self.register_buffer('dial', x)",
        "kwargs['dial']",
        "kwargs.get('dial')",
        "{'dial': 1}",
        "names = ['dial']",
        "self.config.dial",
        "text_config.dial",
    ],
)
def test_a_word_is_the_models_where_a_file_of_it_binds_it(text: str) -> None:
    assert uses(text).bound == {WORD}


@pytest.mark.parametrize(
    "text",
    [
        "x.dial",
        "x.dial()",
        "print(dial)",
        "f(mode='dial')",
        "x.y.dial[0]",
        "from ..llama.m import L\nL(dial=1)",
        "super().__init__(dial=1)",
        "self.layer(dial=1)",
        "dict(dial=1)",
        "dial(",
    ],
)
def test_a_word_that_is_only_read_is_not_bound(text: str) -> None:
    assert uses(text).bound == set()


@pytest.mark.parametrize(
    "beginning",
    [
        "import torch",
        "import a.b as torch",
        "from a import torch",
        "from ...utils import torch",
        "from transformers.utils import torch",
    ],
)
def test_keywords_and_attributes_of_what_is_imported_from_outside(beginning: str) -> None:
    found = uses(f"{beginning}\ntorch.f(x)[0].g(dial=dial) + torch.nn.dial(x) + x.dial")
    assert (found.keywords, found.chains, found.bound) == ({WORD}, {"torch.nn.dial"}, set())


@pytest.mark.parametrize("beginning", ["from ..dialect.m import L", "from transformers.models.x.m import L", "L = 1"])
def test_keywords_and_attributes_of_models_are_not_those_of_other_libraries(beginning: str) -> None:
    found = uses(f"{beginning}\nL.f(dial=1) + L.dial")
    assert (found.keywords, found.chains) == (set(), set())
