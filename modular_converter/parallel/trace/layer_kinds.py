"""Kinds of layers in a trace, and lengths that its code compares with numbers."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator

from modular_converter.parallel.trace.graph import Arg, Comparison, Op, Source, Trace, evaluate


# Operator -> its name in kinds. Empty for operators that only strides, types and devices require: a model in half
# precision has conversions that its small instance in float32 lacks.
_COUNTED_AS = {
    "_unsafe_view": "view",
    "_reshape_alias": "view",
    "_to_copy": "",
    "alias": "",
    "clone": "",
    "detach": "",
    "lift_fresh": "",
}
# A function whose operations permute dimensions in an order that depends on sizes: the line of code counts instead.
_ORDERED_BY_SIZE = "einsum"
# Weights beside these have as many blocks as they join or part, and a setting may give this number.
_JOINS, _PARTS = "cat", "chunk"
# A slice border that is a number in the code may be beyond the end in a small instance, and inside in a larger one.
_CUTS, CUT = "slice", "cut"
Kind = frozenset[tuple[str, ...]]


def layer_kinds(trace: Trace) -> dict[str, Kind]:
    """Path of each layer -> its kind, for members of the outermost lists of modules that ran.

    A kind consists of operations with their dimensions and the module inside the layer that runs them, classes of modules,
    and attributes that are sources of integers. It has no sizes, so that a small instance has the kinds of a large model,
    except the number of tensors that an operation joins or parts, and whether a slice cuts. The empty path is the code
    around the layers, with its operations on floating numbers.
    """
    found: dict[str, set[tuple[str, ...]]] = {"": set()}
    inside: set[int] = set()
    for call in trace.modules:
        if is_layer(call.path):
            inside.update(range(call.first, call.last))
            found.setdefault(call.path, set()).update(_facts(trace, call.path, range(call.first, call.last)))
    for number, op in enumerate(trace.ops):
        layer = layer_of(op.module)
        if number not in inside and (layer or any(trace.tensors[n].floating for n in op.outputs)):
            found.setdefault(layer, set()).update(_facts(trace, layer, range(number, number + 1)))
    for path, name in trace.module_classes.items():
        layer = layer_of(path)
        if layer and layer in found:
            found[layer].add(("class", _inside(path, layer), name))
    return {path: frozenset(facts) for path, facts in found.items()}


def is_shown_by(kind: Kind, other: Kind) -> bool:
    """Whether two kinds are the same, except for slices that cut only in the second."""
    return kind <= other and all(fact[0] == CUT for fact in other - kind)


def is_layer(path: str) -> bool:
    """Whether a path is a numbered member of an outermost list."""
    return bool(path) and layer_of(path) == path


def layer_of(path: str) -> str:
    """The path up to its first number; empty if there is none."""
    words = path.split(".")
    first = next((n for n, word in enumerate(words) if word.isdigit()), None)
    return ".".join(words[: first + 1]) if first is not None else ""


def _facts(trace: Trace, layer: str, numbers: Iterable[int]) -> Iterator[tuple[str, ...]]:
    for op in map(trace.ops.__getitem__, numbers):
        call = trace.calls[op.call] if op.call >= 0 else None
        if name := _COUNTED_AS.get(op.name, op.name):
            dims = " ".join(map(str, op.dims))
            if call is not None and call.function == _ORDERED_BY_SIZE:
                dims = call.site
            if layer and name == _JOINS and op.args and isinstance(op.args[0], tuple):
                dims += f" of {len(op.args[0])}"
            if layer and call is not None and call.function == _PARTS:
                dims += f" into {len(op.outputs)}"
            if name == _CUTS and _is_cut(trace, op):
                yield CUT, name, _inside(op.module, layer), dims
            yield "operation", name, _inside(op.module, layer), dims
        if call is not None:
            leaves = (leaf for source in call.integers for leaf in source.leaves())
            yield from (("integer", call.function, _inside(leaf.owner, layer), leaf.name) for leaf in leaves)


def _is_cut(trace: Trace, op: Op) -> bool:
    """Whether a slice leaves a part of a dimension, and not all or nothing."""
    before, after = (trace.tensors[number].shape for number in (op.inputs()[0], op.outputs[0]))
    return before != after and 0 not in after


def _inside(path: str, layer: str) -> str:
    """A path relative to a layer."""
    return inner_path(path.removeprefix(layer).lstrip(".") if path.startswith(layer) else f"outside:{path}")


def inner_path(rest: str) -> str:
    """A path inside a layer, with ``*`` in place of numbers, such as the numbers of experts."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", rest)


_SMALL = 64


def holds(compared: Comparison) -> bool:
    """The result of a comparison."""
    return bool(getattr(operator, compared.operator)(compared.left.value, compared.right.value))


def compares_at(compared: Comparison, usual: int, other: int) -> bool:
    """Whether a comparison holds if dimensions of the usual length have the other length."""

    def leaf(source: Source) -> int:
        return other if source.kind == "shape" and source.value == usual else source.value

    left, right = evaluate(compared.left, leaf), evaluate(compared.right, leaf)
    return bool(getattr(operator, compared.operator)(left, right))


def lengths_in(compared: Comparison) -> set[int]:
    """The lengths of tensors on which a comparison depends."""
    return {source.value for source in _sources((compared.left, compared.right)) if source.kind == "shape"}


def other_length(compared: Comparison, usual: int, most: int) -> int | None:
    """The smallest length up to ``most``, in place of the usual one, for which a comparison has another result."""
    if usual not in lengths_in(compared):
        return None
    was = compares_at(compared, usual, usual)
    return next((n for n in lengths_near(compared, most=most) if compares_at(compared, usual, n) != was), None)


def lengths_near(*compared: Comparison, most: int = 1 << 20) -> list[int]:
    """Small lengths, and lengths near the numbers in comparisons and near their products, up to ``most``."""
    sides = [side for one in compared for side in (one.left, one.right)]
    numbers = {1, *(source.value for source in _sources(sides))}
    about = {a * b + more for a in numbers for b in numbers for more in (-1, 0, 1)}
    return sorted(n for n in about | set(range(1, _SMALL + 1)) if 1 <= n <= most)


def beyond_numbers(numbers: Iterable[float], usual: int, most: int) -> int | None:
    """The length beyond all of these numbers that are longer than the usual length and less than ``most``."""
    found = [int(number) for number in numbers if usual < number < most and number == int(number)]
    return max(found) + 1 if found else None


def numbers_at_positions(trace: Trace) -> Iterator[float]:
    """The plain numbers in a trace's operations that may be compared with positions, such as the width of a window."""
    for op in trace.ops:
        if op.pointwise or "full" in op.name or op.name == "slice":
            given: tuple[Arg, ...] = (*op.args, *(value for _, value in op.kwargs))
            yield from (abs(one) for one in given if isinstance(one, (int, float)) and not isinstance(one, bool))


def _sources(roots: Iterable[Source]) -> Iterator[Source]:
    waiting = list(roots)
    while waiting:
        source = waiting.pop()
        waiting += source.args
        yield source
