"""Operators: the traits in the tables against torch itself, one place for each, and a new one seen by every step."""

import ast
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from modular_converter.parallel.solve.follow import dependence, follow
from modular_converter.parallel.solve.operators import OPERATORS, functions_where, products, views
from modular_converter.parallel.solve.operators.products import pointwise
from modular_converter.parallel.solve.operators.traits import (
    MOVE,
    UNKNOWN,
    Linear,
    Operator,
    OperatorTable,
    Traits,
    opaque,
)
from modular_converter.parallel.solve.write_rules import GradientFlow
from modular_converter.parallel.trace.graph import Op, Parameter, Ref, Tensor, Trace


WING = Path(__file__).parents[3] / "modular_converter" / "parallel"
HERE = WING / "solve" / "operators"
MATRIX = torch.arange(12.0).view(3, 4) - 5.5
ROWS, ANY = torch.tensor([2, 0]), MATRIX.roll(1)
# Arguments behind the first, for operators that need some.
FURTHER = {
    "view": ((4, 3),), "_unsafe_view": ((4, 3),), "transpose": (0, 1), "permute": ((1, 0),),
    "unsqueeze": (0,), "expand": ((2, 3, 4),), "repeat": ((2, 1),), "flip": ((0,),), "roll": ((1,),),
    "constant_pad_nd": ((1, 1),), "masked_fill": (MATRIX > 0, 0.0), "slice": (0, 1, 3), "select": (0, 1), "split": (2,), "split_with_sizes": ((1, 2),),
    "index": ((ROWS,),), "index_select": (0, ROWS), "gather": (0, torch.zeros(2, 4, dtype=torch.long)),
    "_reshape_alias": ((4, 3), (3, 1)),
}  # fmt: skip
TWO = {
    "mul": lambda a, b: a * b, "where": lambda a, b: torch.where(MATRIX > 0, a, b), "div": lambda a, b: a / b,
    "mm": lambda a, b: a @ b.T, "bmm": lambda a, b: torch.bmm(a[None], b.T[None]), "add": torch.add, "sub": torch.sub,
    "cat": lambda a, b: torch.cat([a, b]), "stack": lambda a, b: torch.stack([a, b]),
    "copy": lambda a, b: a.clone().copy_(b),
    "index_add": lambda a, b: a.index_add(0, ROWS, b[:2]), "index_copy": lambda a, b: a.index_copy(0, ROWS, b[:2]),
    "scatter_add": lambda a, b: a.scatter_add(0, torch.zeros(2, 4, dtype=torch.long), b[:2]),
    "index_put": lambda a, b: a.index_put((ROWS,), b[:2]),
}  # fmt: skip


def aten(name):
    return getattr(torch.ops.aten, name, None) or getattr(torch.ops.aten, f"{name}_")


def named(**wanted):
    found = (o for o in OPERATORS.values() if all(getattr(o.traits, key) == value for key, value in wanted.items()))
    return sorted(operator.name for operator in found)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_is_one_of_torch_and_a_view_where_torch_says_so(name):
    schemas = [getattr(aten(name), overload)._schema for overload in aten(name).overloads()]
    own = [schema for schema in schemas if not schema.name.endswith("_") and ".out" not in str(schema)]
    kept = [r for schema in own for r in schema.returns[:1] if r.alias_info and not r.alias_info.is_write]
    assert bool(kept) == OPERATORS[name].traits.view or name == "lift_fresh"


@pytest.mark.parametrize("name", named(linear=Linear.FIRST))
def test_linear_in_the_first_operand(name):
    def run(tensor):
        found = aten(name)(tensor, *FURTHER.get(name, ()))
        return torch.cat([item.flatten() for item in found]) if isinstance(found, (list, tuple)) else found

    torch.testing.assert_close(run(MATRIX) + 3 * run(ANY), run(MATRIX + 3 * ANY))


@pytest.mark.parametrize(
    "name", named(linear=Linear.TOGETHER) + named(linear=Linear.ENDS) + named(linear=Linear.BRANCHES)
)
def test_linear_in_all_operands_together(name):
    run, other = TWO[name], MATRIX.flip(1)
    torch.testing.assert_close(run(MATRIX, ANY) + run(ANY, other), run(MATRIX + ANY, ANY + other))


@pytest.mark.parametrize("name", [*named(linear=Linear.EACH), *named(linear=Linear.NUMERATOR)])
def test_linear_in_one_operand_at_a_time(name):
    run = TWO[name]
    torch.testing.assert_close(run(MATRIX, ANY) + run(ANY, ANY), run(MATRIX + ANY, ANY))
    assert name != "div" or not torch.allclose(run(MATRIX, MATRIX) + run(MATRIX, ANY), run(MATRIX, MATRIX + ANY))


@pytest.mark.parametrize("name", named(gradient=False, shape_only=False))
def test_no_gradient_passes(name):
    leaf = MATRIX.clone().requires_grad_()
    given = (0.0,) if name in ("eq", "ne", "lt", "gt", "le", "ge") else ()
    found = aten(name)(leaf.sigmoid() if name == "bernoulli" else leaf, *given)
    if found.requires_grad:
        found.sum().backward()
        assert not leaf.grad.any()


@pytest.mark.parametrize("name", named(shape_only=True))
def test_values_are_not_read_where_only_the_shape_is(name):
    given = {"full_like": (1.0,), "new_full": ((2,), 1.0)}.get(name, ((2,),) if name.startswith("new_") else ())
    found = aten(name)(torch.full((2,), torch.nan), *given)
    assert found.shape == (2,) and ("empty" in name or not found.isnan().any())
    assert OPERATORS[name].traits.zeros == ("zeros" in name)


def test_functions_are_functions_of_torch():
    names = functions_where(lambda traits: True)
    assert names and all(hasattr(torch.Tensor, name) or hasattr(F, name) or hasattr(torch, name) for name in names)


def test_no_other_file_keeps_a_set_of_operators():
    for path in sorted(WING.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())) if HERE not in path.parents else ():
            if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
                words = [item.value for item in node.elts if isinstance(item, ast.Constant)]
                known = [word for word in words if isinstance(word, str) and word in OPERATORS]
                assert len(known) < 4 or path.stem == "chain", f"{path}:{node.lineno} lists operators: {known}"


def test_two_rules_for_one_operator_are_an_error():
    table = OperatorTable()
    table.operator("twice")(pointwise)
    with pytest.raises(ValueError, match="twice has two rules"):
        table.operator("twice", MOVE)(opaque)
    assert not products.TABLE.operators.keys() & views.TABLE.operators.keys()


@pytest.mark.parametrize(
    "traits, passes, carried, read",
    [(MOVE, True, False, True), (Traits(gradient=False, shape_only=True), False, False, False), (UNKNOWN, True, False, True),
     (Traits(part=True, view=True), True, True, True)],
)  # fmt: skip
def test_every_step_sees_a_new_operator(monkeypatch, traits, passes, carried, read):
    """One entry is enough: axes, gradients, dependence and the weight behind a view follow from it."""
    monkeypatch.setitem(OPERATORS, "brand_new", Operator("brand_new", pointwise, traits))
    tensors = (Tensor((8,), "param", "w"), Tensor((8,), "value"))
    trace = Trace(
        "x", tensors, (Op("brand_new", (Ref(0),), (), (1,), ""),), (), (), (Parameter(("w",), (8,), 0, "X"),), (1,)
    )
    flow = follow(trace)
    assert not flow.opaque and flow.of(0) == flow.of(1)
    assert (1 in GradientFlow(flow, set()).needs) == passes
    assert (1 in flow.origin) == carried
    assert bool(dependence(trace)[1]) == read


def test_products_and_what_reads_shapes_alone():
    """A trait that is lost would leave the tests above without operators."""
    assert named(product=True) == sorted(
        ["mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "_grouped_mm", "convolution"]
    )
    made = [f"new_{one}" for one in ("empty", "full", "ones", "zeros")]
    assert (
        set(made)
        < set(named(shape_only=True))
        <= {name for name in OPERATORS if name in made or name.endswith("_like")}
    )
