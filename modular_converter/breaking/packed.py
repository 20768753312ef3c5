"""The facts of a model as values that JSON knows, and back. Equal modules and places are written once, and paths relative to a
folder: the facts are those of the same texts anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from modular_converter.breaking.facts import (
    FileFacts,
    MethodParameter,
    ModelFacts,
    PublicClass,
    Renaming,
    Signature,
    Written,
)
from modular_converter.breaking.values import CodePlace, Node, Part, Shape


def values_of_facts(facts: ModelFacts, top: str) -> dict[str, Any]:
    """The facts of a model, but for the files that they were read from.

    Args:
        top: the folder that paths are relative to.
    """
    return _Packer(top).model(facts)


def facts_of_values(values: Mapping[str, Any], top: str) -> ModelFacts:
    """The inverse of `values_of_facts`. Raises `ValueError`, `TypeError`, `LookupError` or `AttributeError` for other values."""
    return _Unpacker(values, top).model(values)


class _Packer:
    def __init__(self, top: str) -> None:
        self._top = top
        self._places: dict[CodePlace, int] = {}
        self._nodes: list[list[Any]] = []
        self._numbers: dict[int, int] = {}
        """The identity of a module -> its number."""

    def model(self, facts: ModelFacts) -> dict[str, Any]:
        files = [
            [name, self._path(one.path), one.exported, one.line, {key: self._class(it) for key, it in one.classes.items()}]
            for name, one in facts.files.items()
        ]  # fmt: skip
        renamings = {kind: [one.text, self._place(one.place)] for kind, one in facts.renamings.items()}
        places = [[self._path(one.path), one.line, one.owner] for one in self._places]
        init = self._path(facts.init)
        return {"places": places, "nodes": self._nodes, "files": files, "init": init, "renamings": renamings}

    def _path(self, path: str) -> str:
        return os.path.relpath(path, self._top) if path else ""

    def _place(self, place: CodePlace) -> int:
        return self._places.setdefault(place, len(self._places))

    def _class(self, cls: PublicClass) -> list[Any]:
        methods = {
            name: [self._place(one.place), one.parameters, sorted(one.decorated), one.is_attribute]
            for name, one in cls.methods.items()
        }
        fields, variables = (
            {name: [one.text, self._place(one.place)] for name, one in all.items()}
            for all in (cls.fields, cls.variables)
        )
        state = self._node(cls.state) if cls.state is not None else None
        place = self._place(cls.place)
        return [cls.name, place, cls.is_configuration, cls.bases, methods, fields, variables, cls.documented, state]

    def _node(self, node: Node) -> int:
        if id(node) not in self._numbers:
            parts = [
                [
                    one.name,
                    self._place(one.place),
                    one.is_certain,
                    one.shape,
                    self._node(one.module) if one.module is not None else None,
                    one.unknown,
                ]
                for one in node.parts
            ]
            self._numbers[id(node)] = len(self._nodes)
            self._nodes.append([node.kind, self._place(node.place), parts, node.digest, node.size])
        return self._numbers[id(node)]


class _Unpacker:
    def __init__(self, values: Mapping[str, Any], top: str) -> None:
        self._top = top
        self._places = [CodePlace(self._path(path), line, owner) for path, line, owner in values["places"]]
        self._nodes: list[Node] = []
        for kind, place, parts, digest, size in values["nodes"]:
            self._nodes.append(Node(kind, self._places[place], tuple(map(self._part, parts)), digest, size))

    def model(self, values: Mapping[str, Any]) -> ModelFacts:
        files = {
            name: FileFacts(self._path(path), tuple(exported), line, {key: self._class(*it) for key, it in classes.items()})
            for name, path, exported, line, classes in values["files"]
        }  # fmt: skip
        renamings = {kind: Renaming(text, self._places[place]) for kind, (text, place) in values["renamings"].items()}
        return ModelFacts(files, self._path(values["init"]), renamings, {})

    def _path(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._top, path)) if path else ""

    def _part(self, values: Sequence[Any]) -> Part:
        name, place, is_certain, shape, module, unknown = values
        held = self._nodes[module] if module is not None else None
        return Part(name, self._places[place], is_certain, Shape(*shape) if shape is not None else None, held, unknown)

    def _class(
        self,
        name: str,
        place: int,
        is_configuration: bool,
        bases: Sequence[str],
        methods: Mapping[str, Sequence[Any]],
        fields: Mapping[str, Sequence[Any]],
        variables: Mapping[str, Sequence[Any]],
        documented: Mapping[str, int],
        state: int | None,
    ) -> PublicClass:
        return PublicClass(
            name,
            self._places[place],
            is_configuration,
            tuple(bases),
            {key: self._signature(*one) for key, one in methods.items()},
            {key: Written(text, self._places[at]) for key, (text, at) in fields.items()},
            {key: Written(text, self._places[at]) for key, (text, at) in variables.items()},
            documented,
            self._nodes[state] if state is not None else None,
        )

    def _signature(
        self, place: int, parameters: Sequence[Sequence[Any]], decorated: Sequence[str], is_attribute: bool
    ) -> Signature:
        made = tuple(MethodParameter(*one) for one in parameters)
        return Signature(self._places[place], made, frozenset(decorated), is_attribute)
