"""What code fills."""

import pytest

from modular_converter.model.nodes import parse
from modular_converter.model.state import fills


@pytest.mark.parametrize(
    "text",
    [
        "TABLE['a'] = 1",
        "del TABLE['a']",
        "TABLE[0]['a'] = 1",
        "TABLE.update(a=1)",
        "TABLE['a'].append(1)",
        "next(TABLE)",
        "dict.update(TABLE, a=1)",
        "found.append(TABLE)",
    ],
)
def test_code_that_fills_an_object(text):
    assert fills(parse(text), "TABLE")


@pytest.mark.parametrize(
    "text", ["TABLE = {}", "TABLE.requires_grad_(False)", "f(TABLE)", "TABLE['a']", "OTHER.update(a=1)"]
)
def test_code_that_does_not(text):
    assert not fills(parse(text), "TABLE")
