"""What the checks look at: the modular file, the classes built from it, and the files that they went to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Union

from modular_converter.convert.inherit.blocks import pad, parse_padded
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedDefinition, GeneratedFiles
from modular_converter.convert.source.exports import exported_names
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Module, Statement
from modular_converter.diagnostics import Location, locate, locate_word


_METHOD = re.compile(r"^([ \t]+)(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]  # noqa: UP007  (evaluated, also by Python 3.9)


@dataclass(frozen=True)
class Context:
    """One conversion, as the checks see it."""

    neighbours: Neighbourhood
    classes: Mapping[str, BuiltClass]
    collection: GeneratedFiles
    library: Library

    @property
    def path(self) -> str:
        """The path of the modular file."""
        return self.neighbours.target.path

    @property
    def module(self) -> Module:
        """The modular file."""
        return self.neighbours.target.module

    @cached_property
    def source(self) -> str:
        """The text of the modular file; read only when there is something to say."""
        return self.library.text(self.path)

    @cached_property
    def exported(self) -> Mapping[str, None]:
        """The names in the modular file's `__all__`, in order."""
        statement = self.module.definitions.get("__all__")
        return dict.fromkeys(exported_names(statement))

    @cached_property
    def generated(self) -> Mapping[str, GeneratedDefinition]:
        """The definitions of all generated files by name."""
        return {name: one for file in self.collection.files for name, one in file.definitions.items()}

    def at(self, word: str, statement: Statement) -> Location:
        """The first place of a word in a statement of the modular file."""
        return locate_word(self.path, word, self.source, statement.line)

    def at_class(self, built: BuiltClass) -> Location:
        """The place of a class's name where it is defined."""
        return self.at(built.name, built.statement)

    def at_node(self, node: ast.AST, statement: Statement, method: Method) -> Location:
        """The place of a node of the syntax tree of one method of a class."""
        padded = pad(method.text)
        place = locate(self.path, node, padded)
        below = statement.line - 1 - (padded is not method.text) + statement.text.count("\n", 0, method.start)
        end = None if place.end_line is None else place.end_line + below
        return replace(place, line=place.line + below, end_line=end)


@dataclass(frozen=True)
class Method:
    """A method of a class, as text."""

    name: str
    text: str
    """From its `def` on, without decorators."""
    start: int
    """Offset of `text` in the text of its class."""
    indent: int


def methods(text: str) -> Mapping[str, Method]:
    """The methods of a class by name; of several with one name the last. They are found by their indentation."""
    found = list(_METHOD.finditer(text))
    indent = min((len(match[1]) for match in found), default=0)
    own = [match for match in found if len(match[1]) == indent]
    ends = [match.start() for match in own[1:]] + [len(text)]
    return {
        match[2]: Method(match[2], text[match.start() : _end(text, match.start(), end)], match.start(), indent)
        for match, end in zip(own, ends)
    }


def _end(text: str, start: int, end: int) -> int:
    """The end of a method without the decorators of the next one, which are indented as its `def` is."""
    method = text[start:end]
    indent = method[: len(method) - len(method.lstrip())]
    decorator = text.find(f"\n{indent}@", start, end)
    return end if decorator < 0 else decorator + 1


def bases_within(name: str, definitions: Mapping[str, GeneratedDefinition]) -> Iterator[GeneratedDefinition]:
    """A class and those of its ancestors that one generated file defines."""
    todo, seen = [name], {name}
    while todo:
        definition = definitions.get(todo.pop())
        if definition is None:
            continue
        yield definition
        header = definition.text[definition.text.index("class ") :].partition(":\n")[0]
        for base in re.findall(r"\w+", header.partition("(")[2]):
            if base not in seen:
                seen.add(base)
                todo.append(base)


def parse_method(method: Method) -> Function | None:
    """The syntax tree of a method, padded; None where its text was cut wrongly."""
    try:
        function = parse_padded(pad(method.text))
    except SyntaxError:
        return None
    return function if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
