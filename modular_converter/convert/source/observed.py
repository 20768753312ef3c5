"""Which parts of a module a conversion has looked at, so that an edit elsewhere in it need not count.

A conversion sees of every module its shape (which statements there are, in which order, what they import and inherit),
and of some statements the text. A `Watched` statement notes when it is asked for its text, in whatever way; lines only
decide the order of statements, which is part of the shape.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from modular_converter.convert.conversion import Part
from modular_converter.convert.source import lexer
from modular_converter.convert.source.module import Module, Statement


HEADER = -1
"""Stands for the comments above the first statement, among the positions of statements."""


class _Noted:
    """A field of a statement that notes when it is read."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, statement: Any, owner: type) -> Any:
        values = statement.__dict__
        if "seen" in values:
            values["seen"].add(values["number"])
        if self.name == "uses" and "uses" not in values:
            values["uses"] = lexer.identifiers(values["text"])
        return values[self.name]

    def __set__(self, statement: Any, value: object) -> None:
        statement.__dict__[self.name] = value


class Watched(Statement):
    """A statement that adds its number to `seen` when its text, or what follows from it, is asked for.

    One that is made from it by `dataclasses.replace` is its own and notes nothing more.
    """

    text = _Noted("text")
    lead = _Noted("lead")
    uses = _Noted("uses")


class WatchedModule(Module):
    """A module that adds `HEADER` to `seen` when its header is asked for."""

    header = _Noted("header")


def watch(module: Module, seen: set[int]) -> Module:
    """The module as one that notes into `seen` which of its statements were looked at."""
    statements = []
    for number, statement in enumerate(module.statements):
        watched = object.__new__(Watched)
        watched.__dict__.update(statement.__dict__, number=number, seen=seen)
        statements.append(watched)
    whole = object.__new__(WatchedModule)
    whole.__dict__.update(
        path=module.path, header=module.header, statements=tuple(statements), number=HEADER, seen=seen
    )
    return whole


def shape_of(module: Module) -> str:
    """A hash of what a conversion sees of every module that it opens."""
    shape = [
        repr((one.role.value, one.name, one.imports, sorted(one.condition), one.bases, one.is_store))
        for one in module.statements
    ]
    return _digest(shape)


def part_of(module: Module, seen: Collection[int], shape: str) -> Part:
    """The statements with these numbers, and a hash that stands for them and for the shape of their module."""
    values = [module.statements[number].__dict__ for number in sorted(seen) if number != HEADER]
    texts = [text for value in values for text in (value["lead"], value["text"])]
    texts += [module.__dict__["header"]] if HEADER in seen else []
    return Part(tuple(sorted(seen)), _digest([shape, *texts]))


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
