"""Which values are plain, and which mean the same."""

from __future__ import annotations

import pytest


torch = pytest.importorskip("torch")
from modular_converter.parallel.modules import is_same_value  # noqa: E402


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (1.5, 1.5, True),
        (float("nan"), float("nan"), True),
        (1, 1.0, False),
        (1, True, False),
        ((1, "a"), (1, "a"), True),
        (torch.float32, torch.float64, False),
        ([1], [1], False),  # another list, which can change on its own
    ],
)
def test_values_that_mean_the_same(old, new, same):
    assert is_same_value(old, new) is same
    assert is_same_value(new, old) is same
    assert is_same_value(old, old)
