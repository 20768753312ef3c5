"""Each operator rule alone, by brute force: what it allows is right on shards, what it forbids is wrong on them.

An operator runs on random tensors. Each axis is split over two ranks, the integers that the rule asks for shrink, the
operator runs on the shards, and its results are put together: they must be the whole result where the rule allows the
axis, and must differ, or fail, where it does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from modular_converter.parallel.solve.axes import Seq
from modular_converter.parallel.solve.choose import layout, leaf_reasons, solve_requirements
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.solve.operators import OPERATORS
from modular_converter.parallel.trace.graph import PARAM
from modular_converter.parallel.trace.record import record, tensors_in
from tests.parallel.solve.operator_calls import CALLS, MUTE_CALLS
from tests.parallel.solve.operator_cases import CASES as PLAIN
from tests.parallel.solve.operator_cases import Call, Draw
from tests.parallel.solve.operator_forms import FORMS, MUTE_FORMS


CASES = PLAIN | FORMS | CALLS
RANKS = 2
DRAWS = 3
SEED = os.environ.get("OPERATOR_SEED", "0")


class Caller(nn.Module):
    """A model of one call: its split tensors are weights, its whole ones buffers, its sizes attributes."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        for name, tensor in call.split.items():
            self.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=False))
        for name, tensor in call.whole.items():
            self.register_buffer(name, tensor)
        for name, size in call.sizes.items():
            setattr(self, name, size)
        self.call = [call]

    def forward(self) -> object:
        return self.call[0].run(self)


@pytest.mark.parametrize("draw", range(DRAWS))
@pytest.mark.parametrize("name", sorted(CASES))
def test_axes_that_a_rule_allows_are_right_on_shards_and_others_are_not(name: str, draw: int) -> None:
    call = CASES[name](Draw(f"{SEED} {name} {draw}"))
    flow, outputs = _followed(call, name)
    name = name.partition(":")[0]
    assert any(op.name.rstrip("_") == name or op.name == name for op in flow.trace.ops), "the case calls the operator"
    for leaf in _leaves(flow):
        reasons = leaf_reasons(flow).get(leaf, [])
        shrink, conflict = solve_requirements(flow, {leaf})
        if not reasons and conflict is None:
            difference = _difference(call, flow, outputs, leaf, shrink)
            assert difference == "", f"axis {_place(flow, leaf)} is allowed: {difference}"
        elif reasons and CAUTIOUS.get(name, f"{name} (no rule)") not in reasons:
            assert _difference(call, flow, outputs, leaf, shrink), f"axis {_place(flow, leaf)} is forbidden: {reasons}"


def test_every_operator_has_a_case() -> None:
    assert OPERATORS.keys() <= CASES.keys() | {f"{name}_" for name in CASES}


def test_rules_allow_something() -> None:
    """Rules that forbid everything would pass above; those that do are known."""
    mute = set()
    for name, make in CASES.items():
        flow, _ = _followed(make(Draw(f"{SEED} {name} 0")), name)
        allowed = [leaf for leaf in _leaves(flow) if not leaf_reasons(flow).get(leaf)]
        if not any(solve_requirements(flow, {leaf})[1] is None for leaf in allowed):
            mute.add(name)
    assert mute == MUTE | MUTE_FORMS | MUTE_CALLS, sorted(mute)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("avg_pool2d", "01"), ("upsample_nearest1d", "01"), ("im2col", "01"), ("tril", "0"), ("sum: last_but_one", "02")],
)
def test_dimensions_that_pass(name: str, allowed: str) -> None:
    """A rule that forbids more makes its results whole, from which every share differs."""
    flow, _ = _followed(CASES[name](Draw(f"{SEED} {name} 0")), name)
    found = [leaf for leaf in _leaves(flow) if not leaf_reasons(flow).get(leaf)]
    assert {_place(flow, leaf)[0] for leaf in found} == {*allowed}


def test_the_operands_of_a_convolution_in_groups() -> None:
    flow, _ = _followed(CASES["convolution: each_alone"](Draw(f"{SEED} each_alone 0")), "convolution")
    names = {parameter.tensor: parameter.name for parameter in flow.trace.parameters}
    assert [[names[one] for one in found.operands] for found in flow.contractions] == [["x", "weight"]]


# Operator -> the reason of axes that stay whole although shards of them would be right: no plan needs more.
CAUTIOUS = {
    "native_batch_norm": "a norm over channels",
    "_native_batch_norm_legit_no_training": "a norm over channels",
    "_scaled_dot_product_flash_attention_for_cpu": "positions",
    "select": "an index",
    "slice": "a slice that torch works out",
    "squeeze": "a squeeze, which drops a share of one entry",  # with as many ranks as entries
}
# Operators that read all values, make tensors whole, or have no rule that looks closer.
MUTE = {
    *("_local_scalar_dense", "nonzero", "histc", "bincount", "equal", "as_strided", "unfold", "index_put"),
    *("arange", "randn", "rand", "randint", "eye", "linspace", "randperm", "randn_like", "squeeze"),
}


def _followed(call: Call, name: str) -> tuple[Flow, tuple[int, ...]]:
    """The axes of a call, and the numbers of its results, which are none of a model: those would stay whole."""
    trace = record(Caller(call), {}, name)
    return follow(replace(trace, outputs=())), trace.outputs


def _leaves(flow: Flow) -> list[int]:
    """The axes of the weights that split in two."""
    found = {}
    for tensor in range(len(flow.trace.tensors)):
        if flow.trace.tensors[tensor].kind == PARAM:
            for seq in flow.of(tensor):
                found |= {atom.number: None for atom in flow.axes.leaves(seq) if atom.size % RANKS == 0}
    return list(found)


def _place(flow: Flow, leaf: int) -> str:
    for parameter in flow.trace.parameters:
        for dim, seq in enumerate(flow.of(parameter.tensor)):
            if leaf in {atom.number for atom in flow.axes.leaves(seq)}:
                return f"{dim} of {parameter.name} {parameter.shape}"
    return "?"


def _difference(call: Call, flow: Flow, outputs: tuple[int, ...], leaf: int, shrink: set[tuple[str, str]]) -> str:
    """How the results of the ranks differ from the whole ones; empty if they do not."""
    whole = tensors_in(Caller(call)())
    summed = any(leaf in {atom.number for atom in flow.axes.leaves(c.seq)} for c in flow.contractions)
    names = {name for _, name in shrink}
    total: list[torch.Tensor] = []
    for rank in range(RANKS):
        try:
            found = tensors_in(Caller(_local(call, flow, leaf, names, rank, summed))())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if len(found) != len(whole):
            return f"{len(found)} results instead of {len(whole)}"
        if summed:
            total = [a + b for a, b in zip(total, found)] if total else found
            continue
        for number, got, want in zip(outputs, found, whole):
            want = _share(flow, want, flow.of(number), leaf, rank)
            if got.shape != want.shape or not torch.allclose(got, want, rtol=1e-2, atol=1e-4, equal_nan=True):
                return f"rank {rank} gives {tuple(got.shape)}, its share is {tuple(want.shape)}"
    for got, want in zip(total, whole) if summed else ():
        if got.shape != want.shape or not torch.allclose(got.float(), want.float(), rtol=2e-2, atol=1e-1 * float(want.abs().max())):  # fmt: skip
            return "the sum over the ranks is another"
    return ""


def _local(call: Call, flow: Flow, leaf: int, names: set[str], rank: int, summed: bool) -> Call:
    """The call of one rank. A bias is added once."""
    split = {}
    for parameter in flow.trace.parameters:
        share = _share(flow, call.split[parameter.name], flow.of(parameter.tensor), leaf, rank)
        split[parameter.name] = share * 0 if summed and rank and parameter.name == "bias" else share
    sizes = {name: size // RANKS if name in names else size for name, size in call.sizes.items()}
    return Call(call.run, split, call.whole, sizes)


def _share(flow: Flow, tensor: torch.Tensor, dims: list[Seq], leaf: int, rank: int) -> torch.Tensor:
    for dim, seq in enumerate(dims):
        places = torch.tensor(list(_places(layout(flow, seq, {leaf}), rank)), dtype=torch.long)
        tensor = tensor.index_select(dim, places)
    return tensor


def _places(blocks: list[tuple[int, bool]], rank: int) -> Iterator[int]:
    """The entries of an axis that a rank has."""
    start = 0
    for length, split in blocks:
        share = length // RANKS if split else length
        first = start + (rank * share if split else 0)
        yield from range(first, first + share)
        start += length
