"""MC202, MC303, MC304, MC305: removals of what is not there, and of what is still needed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from typing import Union

from modular_converter.diagnostics import ConversionError, Diagnostic
from modular_converter.inherit.blocks import parse_block
from modular_converter.inherit.build import BuiltClass
from modular_converter.inherit.merge import is_raising_stub
from modular_converter.inherit.resolve import module_path
from modular_converter.lint.context import Context, bases_within, methods
from modular_converter.records import Definition, Module
from modular_converter.source import lexer
from modular_converter.source.library import Library

_STUB = re.compile(r"^([ \t]+)(?:async def |def |\)).*:[ \t]*\n\1[ \t]+raise ", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^(?:[ \t]*\n)*([ \t]+)(?:(?:async[ \t]+)?(?:def|class)[ \t]+)?(\w+)[ \t]*(?:[:=(]|$)", re.MULTILINE)


def check_removed_attribute(
    context: Context, built: BuiltClass, node: Union[ast.Assign, ast.AnnAssign]
) -> Iterator[Diagnostic]:
    """`x = AttributeError()` of something that neither the parent nor an ancestor of it has."""
    value = node.value
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "AttributeError"):
        return
    written = context.neighbours.resolution.parent(built.statement)
    if not isinstance(target, ast.Name) or written is None:
        return
    taken = context.neighbours.resolution.taken[written]
    module = context.neighbours.resolution.neighbours[taken.neighbour].module
    known = _attributes(taken.name, module, context.library)
    if known is not None and target.id not in known:
        from modular_converter.rules import remove_unknown_attribute

        place = context.at_node(target, built.statement)
        yield remove_unknown_attribute.diagnose(place, target.id, taken.name, candidates=known)


def _attributes(name: str, module: Module, library: Library, depth: int = 0) -> set[str] | None:
    """The attributes of a class and of its ancestors, wherever they lie; None when one of them cannot be seen."""
    if name == "object":
        return set()
    statement = module.definitions.get(name)
    if statement is None:
        elsewhere = _module_of(name, module, library)
        return None if elsewhere is None or depth > 20 else _attributes(name, elsewhere, library, depth + 1)
    node = ast.parse(statement.text).body[0]
    if not isinstance(node, ast.ClassDef):
        return None
    attributes = set(_bound_in(node.body))
    for base in statement.bases:
        inherited = _attributes(base, module, library, depth + 1) if depth <= 20 else None
        if inherited is None:
            return None
        attributes |= inherited
    return attributes


def _module_of(name: str, module: Module, library: Library) -> Module | None:
    """The module that a class is imported from, if its file can be read."""
    imported = module.imported.get(name)
    if imported is None or imported.name != name:
        return None
    path = module_path(imported.module, os.path.dirname(module.path))
    if path is None or not library.exists(path):
        return None
    try:
        return library.module(path)
    except ConversionError:
        return None


def _bound_in(body: list[ast.stmt]) -> Iterator[str]:
    """The names that the statements of a class bind."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def check_deleted(
    context: Context,
    built: BuiltClass,
    function: Union[ast.FunctionDef, ast.AsyncFunctionDef],
    position: int,
    inherited: Mapping[str, str],
) -> Iterator[Diagnostic]:
    """`del self.x` behind the `super()` call, which is the statement at `position`."""
    for statement in function.body[position + 1 :]:
        for target in statement.targets if isinstance(statement, ast.Delete) else []:
            if not (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"):
                continue
            place = context.at_node(target, built.statement)
            assigned = _assigned_at_top(inherited[function.name])
            if target.attr not in assigned:
                from modular_converter.rules import del_unknown_attribute

                parent = context.neighbours.resolution.parent(built.statement) or ""
                yield del_unknown_attribute.diagnose(place, target.attr, function.name, parent, candidates=assigned)
            elif readers := _readers(context, built, target.attr):
                from modular_converter.rules import del_still_read

                yield del_still_read.diagnose(place, target.attr, built.name, readers)


def _assigned_at_top(method: str) -> set[str]:
    """The attributes that a method assigns at the top level of its body."""
    found = re.findall(r"^([ \t]+)self\.(\w+)[ \t]*(?::|=(?!=))", method, re.MULTILINE)
    indent = 2 * (len(method) - len(method.lstrip()))
    return {name for space, name in found if len(space) == indent}


def _readers(context: Context, built: BuiltClass, attribute: str) -> tuple[str, ...]:
    """The methods of a generated class that read an attribute which nothing in it or its visible bases binds."""
    file = next(file for file in context.collection.files if built.name in file.definitions)
    binds = re.compile(rf"^[ \t]+(?:self\.|def ){attribute}\b[ \t]*(?:=(?!=)|:|\(|,)|^[ \t]+{attribute}[ \t]*[:=]", re.MULTILINE)
    if any(binds.search(lexer.code_only(base.text)) for base in bases_within(built.name, file.definitions)):
        return ()
    reads = re.compile(rf"\bself\.{attribute}\b(?![ \t]*=(?!=))")
    own = methods(built.text)
    return tuple(name for name, text in own.items() if reads.search(lexer.code_only(text)))


def check_stubs(context: Context, built: BuiltClass) -> Iterator[Diagnostic]:
    """Raising stubs for methods that are still called."""
    text = built.statement.text
    if built.parent is None or not _STUB.search(text):
        return
    inherited = methods(built.parent.text)
    for part in parse_block(text).parts:
        if not part.is_function or not is_raising_stub(part) or part.function.name not in inherited:
            continue
        name = part.function.name
        if callers := _callers(context, built, name):
            from modular_converter.rules import stub_still_called

            yield stub_still_called.diagnose(context.at(name, built.statement), name, built.name, callers)


def _callers(context: Context, built: BuiltClass, method: str) -> tuple[str, ...]:
    """The methods of a class and its heirs in the same file that call a method which the file no longer has for it."""
    definitions = next(file for file in context.collection.files if built.name in file.definitions).definitions
    call = re.compile(rf"\bself\.{method}\(")
    return tuple(
        f"{definition.name}.{name}"
        for definition in _heirs(built.name, definitions)
        if not any(method in methods(base.text) for base in bases_within(definition.name, definitions))
        for name, text in methods(definition.text).items()
        if call.search(lexer.code_only(text))
    )


def _heirs(name: str, definitions: Mapping[str, Definition]) -> Iterator[Definition]:
    """A class and those that inherit from it within one generated file."""
    for definition in definitions.values():
        if definition.name == name or (
            name in definition.uses
            and definition.text.lstrip().startswith(("class ", "@"))
            and any(base.name == name for base in bases_within(definition.name, definitions))
        ):
            yield definition
