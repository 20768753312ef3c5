"""Globals of a module that code fills or counts up where it stands, by itself or by functions that it calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from modular_converter.model.bindings import FUNCTIONS, MUTATORS, Bindings, bindings_of, fills
from modular_converter.model.module import Module, Role
from modular_converter.model.nodes import parse


class Filling:
    """Which of some globals, the holders, the functions of a module fill when they are called, and other code at once."""

    def __init__(self, module: Module, holders: Set[str], rename: Callable[[str], str]) -> None:
        """`rename` gives the names that functions and holders have in generated code."""
        self._names = {new: name for name in sorted(holders) for new in (rename(name), name)}
        changing = "|".join(sorted(MUTATORS))
        self._filled = re.compile(rf"\b(?:(?:{'|'.join(self._names)})(?:\[|\.(?:{changing})\()|next\(|global )")
        functions = [one for one in module.statements if one.role is Role.FUNCTION] if holders else []
        given = {one.name: {*re.findall(r"\breturn (\w+)$", one.text, re.MULTILINE)} & holders for one in functions}
        given = {name: found for name, found in given.items() if found}
        found: dict[str, Set[str]] = {}
        known = -1
        while known < (known := sum(map(len, found.values()))):  # of functions that call each other
            for one in functions:
                if self._filled.search(one.text) or not one.uses.isdisjoint(found.keys() | given.keys()):
                    body = parse(one.text).body
                    found[one.name] = _filled_by(body, bindings_of(*body), holders, found, given)
        self._functions = {new: names for name, names in found.items() if names for new in (name, rename(name))}

    def at_once(self, text: str) -> Iterator[Set[str]]:
        """The holders that each part of a statement fills where it stands: a statement, the default of a parameter."""
        if self._names and (self._filled.search(text) or any(name in text for name in self._functions)):
            for part in (part for node in parse(text).body for part in _run_at_once(node)):
                found = {name for new, name in self._names.items() if new in text and fills(part, new)}
                found.update(*(self._functions.get(name, ()) for name in bindings_of(part).calls_now))
                if found:
                    yield found


def _filled_by(
    parts: Sequence[ast.AST],
    scope: Bindings,
    holders: Set[str],
    functions: Mapping[str, Set[str]],
    given: Mapping[str, Set[str]],
) -> Set[str]:
    """The holders that a function fills: by itself, by functions that it calls, or where functions give them to it."""
    found = {name for name in holders & scope.module_names if any(fills(part, name) for part in parts)}
    for one in scope.everywhere:
        found |= one.declared_global & one.binds & holders
        found.update(*(functions.get(name, ()) for name in one.calls_now))
    return found.union(*(given[name] for name in scope.effects.changes & given.keys()))


def _run_at_once(node: ast.stmt) -> list[ast.AST]:
    """The parts of a definition that run where it stands: not the bodies of functions."""
    called = getattr(node, "decorator_list", ())
    decorators = [one if isinstance(one, ast.Call) else ast.Call(one, [], []) for one in called]
    if isinstance(node, ast.ClassDef):
        return [*decorators, *(part for inner in node.body for part in _run_at_once(inner))]
    if isinstance(node, FUNCTIONS):
        return [*decorators, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    return [node]
