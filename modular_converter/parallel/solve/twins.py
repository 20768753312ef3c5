"""Layers that the trace did not use, such as experts without a token: they are split as the layers like them are."""

from __future__ import annotations

import re
from collections.abc import Mapping

from modular_converter.parallel.solve.flow import Flow, uses
from modular_converter.parallel.solve.write_rules import ShardedParameter
from modular_converter.parallel.styles.colwise import COLWISE
from modular_converter.parallel.styles.rowwise import ROWWISE
from modular_converter.parallel.trace.graph import Parameter


_NUMBER = re.compile(r"\d+")
# Roles whose style does all that a split layer needs: no attribute that shrinks and no sum at another module's border.
_COMPLETE = (COLWISE.name, ROWWISE.name)
Key = tuple[str, tuple[int, ...], str]


def unused_twins(flow: Flow, shards: Mapping[str, ShardedParameter]) -> dict[str, ShardedParameter]:
    """Unused parameter -> how it is split: as all used parameters like it are, if they are split in one way.

    Alike are parameters of one shape whose names differ in numbers alone, in modules of one class. Without such a way
    for each weight that is split in the twins of its module, none of the module's weights is.
    """
    used: dict[Key, set[ShardedParameter | None]] = {}
    unused: dict[str, list[Parameter]] = {}
    for parameter in flow.trace.parameters:
        if uses(flow, parameter):
            used.setdefault(_key(flow, parameter), set()).add(shards.get(parameter.name))
        else:
            unused.setdefault(_numbered(parameter.name), []).append(parameter)
    found: dict[str, ShardedParameter] = {}
    for parameters in unused.values():
        ways = {parameter.name: used.get(_key(flow, parameter), {None}) for parameter in parameters}
        if all(len(way) == 1 for way in ways.values()):
            split = {name: one for name, (one,) in ways.items() if one is not None}
            found |= split if all(one.role in _COMPLETE for one in split.values()) else {}
    return found


def _key(flow: Flow, parameter: Parameter) -> Key:
    owner = parameter.name.rpartition(".")[0]
    return _NUMBER.sub("*", parameter.name), parameter.shape, flow.trace.module_classes.get(owner, "")


def _numbered(name: str) -> str:
    """The path up to its last word with a number: the module that has twins."""
    words = name.split(".")
    last = max((number for number, word in enumerate(words) if _NUMBER.search(word)), default=-1)
    return ".".join(words[: last + 1])
