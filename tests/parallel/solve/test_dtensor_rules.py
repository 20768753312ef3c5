"""The solver's rule of each operator, compared with torch's own: the sharding strategies of DTensor.

An operator gets DTensors that are split along one of its axes. Where the solver allows the axis, DTensor's result must
have the solver's placements, without a change of any operand; where the solver keeps the axis whole, DTensor must move
data. Every difference is listed below, with its reason.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from modular_converter.parallel.solve.choose import leaf_reasons
from modular_converter.parallel.solve.flow import AxisRule, Flow
from modular_converter.parallel.solve.operators import OPERATORS, products, views
from modular_converter.parallel.solve.operators.traits import Operator, opaque
from modular_converter.parallel.trace.graph import Op
from tests.parallel.solve.operator_cases import Draw
from tests.parallel.solve.test_operator_rules import CASES, RANKS, SEED, Caller, _followed


PARTIAL = "DTensor has a partial value of its own for it; a plan sums only products with weights"
MORE = {
    "a norm or mean over it": PARTIAL,
    "all over it": PARTIAL,
    "amax over it": PARTIAL,
    "amin over it": PARTIAL,
    "any over it": PARTIAL,
    "prod over it": PARTIAL,
    "sum over it": PARTIAL,
    "a product of two activations sums over it": PARTIAL,
    "rows are looked up in it": "DTensor masks ids of other ranks; a plan does so for a vocabulary, in embedding_rowwise",
    "a norm over channels": "alone in evaluation, where statistics are buffers, which a plan does not cut",
    "an index over part of it": "the ids cover a part of the rows, which DTensor cuts for both",
    "a scatter over it": "index_put writes at given places of the other dimension",
    "a squeeze, which drops a share of one entry": "DTensor changes the call, a plan does not",
    "a view that mixes axes": "the half of a row is the half of its other view; no two factors of it are the same",
    "_grouped_mm (no rule)": "of batches of matrices, which no model has",
    "frexp (no rule)": "no model has it",
    "randn_like (no rule)": "each rank would draw its own numbers; DTensor has a random tracker",
}
"""The solver's reason to keep an axis whole -> why DTensor can split it."""
LESS = {
    "_native_batch_norm_legit_no_training": "DTensor gathers the batch, which is no axis of the statistics",
    "native_batch_norm": "DTensor gathers the batch; in evaluation it is no axis of the statistics",
    "convolution": "DTensor's rule is about batches alone, and takes split channels for whole ones",
    "cat": "DTensor has no rule for an empty tensor among others",
    "linalg_solve_triangular": "DTensor gathers the columns, each of which is solved alone",
    "new_zeros": "DTensor's zeros are whole",
    "slice": "DTensor gathers for a step, also if it divides the shares",
    "split": "DTensor gathers a split into one piece",
    "tril": "DTensor gathers batches of triangles",
    "triu": "DTensor gathers batches of triangles",
}
"""Operator -> why DTensor does not follow an axis that the solver allows. `test_operator_rules` runs these on shares."""
_WHOLE = ("a buffer", "an input", "a constant")  # a tensor's own reasons, which are no rules of an operator


class _Captured(TorchDispatchMode):
    """The dispatched calls, with copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args, kwargs or {}
        self.calls.append((func, tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, given)))
        return func(*args, **given[1])


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    """Ranks that do not exist: their collectives return at once."""
    gc.collect()  # models of earlier tests, for which torch's operations on DTensors are other ones while they live
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def test_rules_agree_with_those_of_dtensor_but_for_known_differences(mesh: DeviceMesh) -> None:
    compared, more, less, unknown = set[str](), set[str](), set[str](), list[str]()
    for name in CASES:
        for op, reasons, said in _differences(name, mesh):
            compared.add(op.name)
            if said and reasons:
                more |= reasons
                unknown += [f"{name}: {said}"] if not reasons & MORE.keys() else []
            elif said:
                less.add(op.name)
                unknown += [f"{name}: {said}"] if op.name not in LESS else []
    assert not unknown, "\n".join(unknown)
    assert len(compared) >= 119
    gone = sorted((MORE.keys() - more) | (LESS.keys() - less))
    assert not gone, f"these are no differences: {gone}"


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("_softmax", products.pointwise),
        ("cumsum", products.pointwise),
        ("transpose", views.identity),
        ("add", opaque),
    ],
)
def test_a_wrong_rule_is_found(name: str, rule: AxisRule, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, name, Operator(name, rule, OPERATORS[name].traits))
    assert any(said for op, _, said in _differences(name, mesh) if op.name == name)


def _differences(name: str, mesh: DeviceMesh) -> Iterator[tuple[Op, set[str], str]]:
    """Each comparison of a case: the operation, the solver's reasons against the axis, and the difference or ''."""
    make = CASES[name]
    flow, _ = _followed(make(Draw(f"{SEED} {name} 0")), name)
    model, captured = Caller(make(Draw(f"{SEED} {name} 0"))), _Captured()
    with captured, torch.no_grad():
        model()
    for (index, op), (func, given) in zip(_dispatched(flow, captured), captured.calls):
        if not _has_strategy(func) or not op.inputs():
            continue
        for leaf in _leaves(flow, op):
            reasons = _reasons(flow, index, leaf)
            sources, results = ([_placement(flow, n, leaf) for n in numbers] for numbers in (op.inputs(), op.outputs))
            if None in sources or None in results or any(reason.startswith(_WHOLE) for reason in reasons):
                continue  # more than placements say
            if _is_contracted(flow, index, leaf):
                sources = [*_added_once(op, sources[:1]), *sources[1:]]
                results = [Partial()] * len(results)
            got, changes = _result(func, given, sources, mesh)
            if reasons:  # whole operands may be cut
                is_split = any(p != Replicate() for p in got) and all(", R -> " in change for change in changes)
                said = f"{op.name} of {sources} is forbidden ({reasons}), DTensor gives {got}" if is_split else ""
            else:
                is_same = got == results and not changes
                said = "" if is_same else f"{op.name} of {sources} gives {results}, by DTensor {got} after {changes}"
            yield op, reasons, said


def _dispatched(flow: Flow, captured: _Captured) -> list[tuple[int, Op]]:
    """The operations of a trace that were dispatched here, too: a trace also has those of Python's own reads."""
    names = [func._schema.name.partition("::")[2] for func, _ in captured.calls]
    found = []
    for index, op in enumerate(flow.trace.ops):
        if len(found) < len(names) and op.name == names[len(found)]:
            found.append((index, op))
    return found if len(found) == len(names) else []


def _has_strategy(func: Any) -> bool:
    """Whether DTensor has a strategy of its own; it also tries decompositions, some of which do not end."""
    known = DTensor._op_dispatcher.sharding_propagator  # type: ignore[attr-defined]
    tables = known.op_strategy_funcs, known.op_single_dim_strategy_funcs, known.op_to_rules
    return any(func in table for table in tables)


def _leaves(flow: Flow, op: Op) -> list[int]:
    """The axes of the operands that split in two."""
    atoms = (atom for number in op.inputs() for seq in flow.of(number) for atom in flow.axes.leaves(seq))
    return list(dict.fromkeys(atom.number for atom in atoms if atom.size and atom.size % RANKS == 0))


def _reasons(flow: Flow, index: int, leaf: int) -> set[str]:
    """The reasons of one operation to keep an axis whole."""
    marks = flow.axes.marks
    flow.axes.marks = [mark for mark in marks if mark.op == index]
    found = {reason for reason, op in leaf_reasons(flow).get(leaf, {}).items() if op == index}
    flow.axes.marks = marks
    return found


def _added_once(op: Op, first: list[Placement | None]) -> list[Placement | None]:
    """The first operand of ``addmm`` and the like, which the ranks' sum must hold once, however the axis is split."""
    return [Partial()] if op.name.startswith(("add", "badd")) else first


def _is_contracted(flow: Flow, index: int, leaf: int) -> bool:
    found = (atom.number for c in flow.contractions if c.op == index for atom in flow.axes.leaves(c.seq))
    return leaf in found


def _placement(flow: Flow, number: int, leaf: int) -> Placement | None:
    """The placement of a tensor whose axis is split; None if the axis is not the outermost factor of one dimension."""
    dims = [d for d, seq in enumerate(flow.of(number)) if leaf in {atom.number for atom in flow.axes.leaves(seq)}]
    if not dims:
        return Replicate()
    first = flow.axes.flat(flow.of(number)[dims[0]])[0]
    return Shard(dims[0]) if len(dims) == 1 and first.number == leaf else None


def _result(
    func: Any, given: Any, sources: list[Placement | None], mesh: DeviceMesh
) -> tuple[list[Placement], list[str]]:
    """The placements of DTensor's results, and the changes of operands that it needs; or no result, and its error."""
    placements = iter(sources)

    def placed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        placement = next(placements)
        assert placement is not None
        if placement.is_partial():
            return DTensor.from_local(value.clone(), mesh, [placement])
        return distribute_tensor(value.clone(), mesh, [placement], src_data_rank=None)

    args, kwargs = tree_map(placed, given)
    try:
        with DebugMode() as steps, torch.no_grad():
            result = func(*args, **kwargs)
    except Exception as error:
        return [], [f"{type(error).__name__}: {error}"]
    changes = [line.strip() for line in steps.debug_string().splitlines() if "redistribute_input [" in line]
    found = [value.placements[0] for value in tree_leaves(result) if isinstance(value, DTensor)]
    return found, changes
