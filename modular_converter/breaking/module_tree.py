"""Functions that walk through a model after its `__init__`, and exchange modules in it: `named_children`, `isinstance`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from modular_converter.breaking.values import (
    ClassValue,
    Either,
    Expression,
    External,
    Items,
    Layer,
    ObjectValue,
    Value,
    either,
    is_module,
)


MODULE = "torch.nn.Module"
HELD = "_modules"
"""The dict of a module in which torch keeps those that it holds."""
_KNOWN_LAYERS = frozenset({"Linear", "Embedding", "LayerNorm", "GroupNorm", *(f"{a}{n}d" for a in ("BatchNorm", "Conv", "ConvTranspose") for n in "123")})  # fmt: skip
"""Layers of `torch.nn` none of which is a base of another."""


def held_modules(module: Value) -> Mapping[str, Value] | None:
    """The modules that a module holds, by name; None where that is not known. They are its own from now on: objects of
    one class that are made alike share their parts, and whoever asks may exchange some.
    """
    if isinstance(module, Layer):
        return {}
    if isinstance(module, Items) and module.is_module:
        module.items[:] = [(name, _unshared(one)) for name, one in module.items]
        return dict(module.items)
    if not isinstance(module, ObjectValue) or not module.is_module:
        return None
    for name, slots in module.slots.items():
        module.slots[name] = [one._replace(value=_unshared(one.value)) for one in slots]
        if len(slots) == 1 and module.attributes.get(name) is slots[0].value:
            module.attributes[name] = module.slots[name][0].value
    held = {name: [one.value for one in slots if is_module(one.value)] for name, slots in module.slots.items()}
    return {name: functools.reduce(either, found) for name, found in held.items() if found}


def _unshared(value: Value) -> Value:
    if isinstance(value, ObjectValue):
        return replace(value, attributes=dict(value.attributes), slots=dict(value.slots))
    if isinstance(value, Items):
        return replace(value, items=[*value.items])
    return Either(tuple(map(_unshared, value.options))) if isinstance(value, Either) else value


def call_on_tree(module: Value, method: str) -> Value | None:
    """`named_children()` and `children()`, as a list of pairs or of modules."""
    found = held_modules(module) if method in ("named_children", "children") else None
    if found is None:
        return None
    if method == "children":
        return Items([(str(number), one) for number, one in enumerate(found.values())])
    pairs = (Items([("0", Expression(repr(name), name)), ("1", one)]) for name, one in found.items())
    return Items([(str(number), pair) for number, pair in enumerate(pairs)])


def exchange(holder: Value, name: str, value: Value, *, is_certain: bool) -> bool:
    """`holder._modules[name] = value` for a list of modules; whether it is one."""
    if not isinstance(holder, Items) or not holder.is_module:
        return False
    holder.items[:] = [
        (one, held if one != name else value if is_certain else either(held, value)) for one, held in holder.items
    ]
    return True


def is_instance(value: Value, wanted: Value) -> bool | None:
    """Whether a module is an object of a class, or of one of several; None where that is not known."""
    if isinstance(wanted, Items):
        answers = {is_instance(value, one) for _, one in wanted.items}
        return True if True in answers else None if None in answers or not answers else False
    if isinstance(value, Either):
        answers = {is_instance(one, wanted) for one in value.options}
        return answers.pop() if len(answers) == 1 else None
    if not is_module(value) or not isinstance(wanted, (External, ClassValue)):
        return None
    if isinstance(wanted, External) and wanted.name == MODULE:
        return True
    if isinstance(value, ObjectValue):
        if any(one is wanted or (isinstance(wanted, External) and one.text == wanted.name) for one in value.ancestors):
            return True
        outer = [one for one in value.ancestors if isinstance(one, External)]
        return False if all(one.name == MODULE for one in outer) else None
    if isinstance(wanted, ClassValue):
        return False
    kind = value.kind if isinstance(value, Layer) else ""
    if kind == wanted.name:
        return True
    names = {one.removeprefix("torch.nn.") for one in (kind, wanted.name)}
    return False if names <= _KNOWN_LAYERS or (isinstance(value, Items) and wanted.name[9:] in _KNOWN_LAYERS) else None
