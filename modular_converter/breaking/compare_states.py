"""Two state dicts compared, as trees of modules: entries that are removed, added, renamed, or have another shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from modular_converter.breaking.changes import ModelChange, for_message
from modular_converter.breaking.state import Node, Part, keys_of
from modular_converter.breaking.values import CodePlace


def compare_states(model: str, old: Node, new: Node, prefix: str = "", layer: str = "") -> Iterator[ModelChange]:
    """The changes of one module; modules within that differ are compared in turn.

    Args:
        model: its model.
        old: the module in the older tree.
        new: the module in the newer tree.
        prefix: the beginning of its entries.
        layer: its name if it is a layer of torch, whose parts no class of the tree names.
    """
    if old.digest == new.digest:
        return
    before, after = _by_name(old), _by_name(new)
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    named = _Named(prefix, layer)
    for name in [*gone]:
        same = [one for one in come if _meanings(after[one]) == _meanings(before[name])]
        if same and len(same) == sum(_meanings(before[one]) == _meanings(before[name]) for one in gone):
            other = same[0]
            if keys := _keys(before[name], prefix):
                message = f"renames {named.shown(name)} to {named.shown(other)}"
                yield ModelChange(
                    "key-renamed", model, _own(after[other][0].place, new), message, named.word(other), keys
                )
            gone.remove(name)
            come.remove(other)
    for name in (*gone, *come):
        if any(one.unknown for one in (*before.get(name, ()), *after.get(name, ()))):
            place = _own(after[name][0].place, new) if name in after else new.place
            message = f"what {named.shown(name)} holds is not known"
            yield ModelChange("state-not-known", model, place, message, named.word(name))
    for name in gone:
        if keys := _keys(before[name], prefix):
            yield ModelChange("key-removed", model, new.place, f"removes {named.shown(name)}", named.word(name), keys)
    for name in come:
        if keys := _keys(after[name], prefix):
            place = _own(after[name][0].place, new)
            yield ModelChange("key-added", model, place, f"adds {named.shown(name)}", named.word(name), keys)
    for name in before:
        if name in after and _meanings(before[name]) != _meanings(after[name]):
            yield from _part(model, name, before[name], after[name], new, named)
        elif name in after and _is_certain(before[name]) and not _is_certain(after[name]):
            place, message = _own(after[name][0].place, new), f"whether it has {named.shown(name)} is not known"
            yield ModelChange("state-not-known", model, place, message, named.word(name))


class _Named(NamedTuple):
    """How messages name the parts of a module."""

    prefix: str
    layer: str

    @property
    def _holder(self) -> str:
        return next((one for one in reversed(self.prefix.split(".")) if one not in ("", "*")), "")

    def shown(self, name: str, key: str = "") -> str:
        """A part, or an entry of it; an item of a list with the list's name."""
        above = self._holder if name == "*" else self.layer
        return f"`{above}.{name}{key}`" if above else f"`{name}{key}`"

    def word(self, name: str) -> str:
        """The name by which a class writes it."""
        return self.layer.removesuffix(".*") or (self._holder if name == "*" else name) or name


def _part(model: str, name: str, old: list[Part], new: list[Part], node: Node, named: _Named) -> Iterator[ModelChange]:
    """The changes of what a module holds under one name in both trees."""
    first, other, prefix = old[0], new[0], named.prefix
    if len(old) == len(new) == 1 and first.module is not None and other.module is not None:
        of_torch = any(one.startswith("torch.") for one in (first.module.kind, other.module.kind))
        inner = named.shown(name).strip("`") if of_torch else ""
        yield from compare_states(model, first.module, other.module, f"{prefix}{name}.", inner)
        return
    place, word, shown = _own(other.place, node), named.word(name), named.shown(name)
    unknown = {one.unknown for one in old} ^ {one.unknown for one in new}
    if unknown - {""}:
        message = f"what {shown} holds is not known, and it is made otherwise"
        yield ModelChange("state-not-known", model, place, message, word)
        return
    before, after = ({key: part for one in side for key, part in _entries(one, "").items()} for side in (old, new))
    gone = tuple(f"{prefix}{name}{key}" for key in before if key not in after)
    come = tuple(f"{prefix}{name}{key}" for key in after if key not in before)
    if gone:
        yield ModelChange("key-removed", model, place, f"removes entries of {shown}", word, gone)
    if come:
        yield ModelChange("key-added", model, place, f"adds entries of {shown}", word, come)
    for key, one in before.items():
        if key in after and len(old) == len(new) == 1 and _differ(one, after[key]):
            was, now = one.shape, after[key].shape
            sizes = f"from `{for_message(was and was.text)}` to `{for_message(now and now.text)}`"
            message = f"changes the shape of {named.shown(name, key)} {sizes}"
            yield ModelChange("key-shape", model, place, message, word, (f"{prefix}{name}{key}",))


def _differ(one: Part, other: Part) -> bool:
    """Whether two tensors have other shapes: other words, unless both are known to be the same numbers."""
    if one.shape is None or other.shape is None or one.shape.text == other.shape.text:
        return False
    return not one.shape.numbers or one.shape.numbers != other.shape.numbers


def _entries(part: Part, prefix: str) -> dict[str, Part]:
    if part.module is not None:
        return {key: one.part for key, one in keys_of(part.module, f"{prefix}.").items()}
    return {} if part.unknown else {prefix: part}


def _keys(parts: list[Part], prefix: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for one in parts for key in _entries(one, f"{prefix}{one.name}")))


def _by_name(node: Node) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for part in node.parts:
        found.setdefault(part.name, []).append(part)
    return found


def _meanings(parts: list[Part]) -> frozenset[str]:
    return frozenset(one.meaning for one in parts)


def _is_certain(parts: list[Part]) -> bool:
    return any(one.is_certain for one in parts)


def _own(place: CodePlace, node: Node) -> CodePlace:
    """The place of a part; that of the module for a part of a layer of torch."""
    return place if place.owner else node.place
