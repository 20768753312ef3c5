"""Split layers that the trace did not use, such as experts without a token, like similar layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from modular_converter.parallel.solve.flow import Flow, uses
from modular_converter.parallel.solve.write_rules import ShardedParameter
from modular_converter.parallel.styles.layout import COLWISE, ROWWISE
from modular_converter.parallel.trace.graph import Parameter


_NUMBER = re.compile(r"\d+")
_PLACE = re.compile(r"(?:^|_)\d+$")  # in a list (`3`, `expert_3`), unlike the number in `fc1`
# Layouts that need neither attributes that shrink nor a sum in another module.
_COMPLETE = (COLWISE, ROWWISE)
Key = tuple[str, tuple[int, ...], tuple[str, ...]]


def unused_twins(flow: Flow, shards: Mapping[str, ShardedParameter]) -> dict[str, ShardedParameter]:
    """Unused parameter -> its split: the split of all similar used parameters, if they are split in the same way.

    Similar parameters have the same shape, names that differ only in numbers, modules of the same classes, and the same
    weights beside them: another forward or another weight may need the whole axis. The weights of a module, and of
    modules with one number in several lists, are split all or not at all.
    """
    modules: dict[tuple[str, frozenset[str], str], dict[str, Key]] = {}
    groups = _groups(parameter.name for parameter in flow.trace.parameters)
    for parameter in flow.trace.parameters:
        modules.setdefault(groups[parameter.name], {})[parameter.name] = _key(flow, parameter)
    known = {parameter.name for parameter in flow.trace.parameters if uses(flow, parameter)}
    used: dict[tuple[Key, frozenset[Key]], set[ShardedParameter | None]] = {}
    for keys in modules.values():
        for name in keys.keys() & known:
            used.setdefault((keys[name], frozenset(keys.values())), set()).add(shards.get(name))
    found: dict[str, ShardedParameter] = {}
    for keys in modules.values():
        ways = {n: used.get((key, frozenset(keys.values())), {None}) for n, key in keys.items() if n not in known}
        if all(len(way) == 1 for way in ways.values()):
            split = {name: one for name, (one,) in ways.items() if one is not None}
            found |= split if all(_is_complete(split, name) for name in split) else {}
    return found


def _is_complete(split: Mapping[str, ShardedParameter], name: str) -> bool:
    """Whether a split is the whole of a layer's, or of a bias that follows its weight."""
    owner, _, leaf = name.rpartition(".")
    weight = split.get(f"{owner}.weight")
    follows = leaf == "bias" and weight is not None and weight.layout == COLWISE
    return follows or split[name].layout in _COMPLETE


def _key(flow: Flow, parameter: Parameter) -> Key:
    words = parameter.name.split(".")
    paths = (".".join(words[:count]) for count in range(1, len(words)))
    classes = tuple(flow.trace.module_classes.get(path, "") for path in paths)
    return _NUMBER.sub("*", parameter.name), parameter.shape, classes


def _groups(names: Iterable[str]) -> dict[str, tuple[str, frozenset[str], str]]:
    """Name -> the module around it, all places in its list, and its own place.

    The list is the last one of its path, and its name does not count: `layers.0.up.3` and `layers.0.down.3` may be parts of
    one expert, if both lists have the same places.
    """
    split = {name: _place_of(name) for name in names}
    places: dict[tuple[str, str], set[str]] = {}
    for owner, listed, place in split.values():
        places.setdefault((owner, listed), set()).add(place)
    return {name: (owner, frozenset(places[owner, listed]), place) for name, (owner, listed, place) in split.items()}


def _place_of(name: str) -> tuple[str, str, str]:
    """The module around the last list of a path, the list's name, and the place in it; empty without a list."""
    words = name.split(".")
    last = max((number for number, word in enumerate(words) if _PLACE.search(word)), default=0)
    return (".".join(words[: last - 1]), words[last - 1], words[last]) if last else ("", "", "")
