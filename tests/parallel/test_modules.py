"""Which values are plain, and which mean the same."""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest


torch = pytest.importorskip("torch")
from modular_converter.model.resolver import attributes_of_known_class  # noqa: E402
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
    # read, not asked: other libraries add attributes to the class while tests run
    [written] = ast.parse(textwrap.dedent(inspect.getsource(torch.nn.Module))).body
    assert isinstance(written, ast.ClassDef)
    own = set()
    for line in written.body:
        match line:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                own.add(name)
            case ast.Assign(targets=targets):
                own |= {target.id for target in targets if isinstance(target, ast.Name)}
    assert {"named_parameters", "training", "_backward_hooks", "__call__"} <= own
    known = attributes_of_known_class("torch.nn.Module") or set()
    assert own - {*dir(object)} - {"forward"} <= known
    assert "forward" not in known
