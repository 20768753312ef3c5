"""The kinds of layers in a forward: layers of one kind run the same operations in modules of the same classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from modular_converter.parallel.trace.graph import Op, Trace


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
