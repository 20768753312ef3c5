"""Which values are plain, and which mean the same."""

from __future__ import annotations

import pytest


torch = pytest.importorskip("torch")
from modular_converter.model.known_classes import attributes_of_known_class  # noqa: E402
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


def test_the_converter_knows_the_attributes_of_modules() -> None:
    of_torch = {  # transformers adds some of its own
        name
        for name, value in vars(torch.nn.Module).items()
        if str(getattr(value, "__module__", "torch")).startswith("torch")
    }
    own = of_torch | {*torch.nn.Module.__annotations__}
    known = attributes_of_known_class("torch.nn.Module") or set()
    assert own - {*dir(object)} - {"forward", "__dict__", "__annotations__", "__module__", "__weakref__"} <= known
    assert "forward" not in known
