"""Split layers that the trace did not use, such as experts without a token, like similar layers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from modular_converter.parallel.solve.flow import Flow, uses
from modular_converter.parallel.solve.write_rules import ShardedParameter
from modular_converter.parallel.styles.colwise import COLWISE
from modular_converter.parallel.styles.rowwise import ROWWISE
from modular_converter.parallel.trace.graph import Parameter


_NUMBER = re.compile(r"\d+")
# Roles that need neither attributes that shrink nor a sum in another module.
_COMPLETE = (COLWISE.name, ROWWISE.name)
Key = tuple[str, tuple[int, ...], tuple[str, ...]]


def unused_twins(flow: Flow, shards: Mapping[str, ShardedParameter]) -> dict[str, ShardedParameter]:
    """Unused parameter -> its split: the split of all similar used parameters, if they are split in the same way.

    Similar parameters have the same shape, names that differ only in numbers, modules of the same classes, and the same
    weights beside them: another forward or another weight may need the whole axis. A module's weights are split all or
    not at all.
    """
    modules: dict[str, dict[str, Key]] = {}
    for parameter in flow.trace.parameters:
        modules.setdefault(_numbered(parameter.name), {})[parameter.name] = _key(flow, parameter)
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
            found |= split if all(one.role in _COMPLETE for one in split.values()) else {}
    return found


def _key(flow: Flow, parameter: Parameter) -> Key:
    words = parameter.name.split(".")
    paths = (".".join(words[:count]) for count in range(1, len(words)))
    classes = tuple(flow.trace.module_classes.get(path, "") for path in paths)
    return _NUMBER.sub("*", parameter.name), parameter.shape, classes


def _numbered(name: str) -> str:
    """The path up to its last number: the module that has twins."""
    words = name.split(".")
    last = max((number for number, word in enumerate(words) if _NUMBER.search(word)), default=-1)
    return ".".join(words[: last + 1])
