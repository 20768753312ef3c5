"""MC202, MC303, MC304, MC305: removals of what is not there, and of what is still needed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping

from modular_converter.convert.inherit.blocks import parse_block
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.merge import is_raising_stub
from modular_converter.convert.inherit.resolve import module_path
from modular_converter.convert.inline.generated import GeneratedDefinition
from modular_converter.convert.lint.context import Context, Method, bases_within, methods
from modular_converter.convert.source import lexer
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Module
from modular_converter.diagnostics import ConversionError, Diagnostic, locate_word


_STUB = re.compile(r"^([ \t]+)(?:async def |def |\)).*:[ \t]*\n\1[ \t]+raise ", re.MULTILINE)
_REMOVAL = re.compile(r"^(?:    |\t)(\w+)[ \t]*(?::[^=\n]*)?=[ \t]*AttributeError\(", re.MULTILINE)


def check_removed_attributes(context: Context, built: BuiltClass) -> Iterator[Diagnostic]:
    """`x = AttributeError()` of something that neither the parent nor an ancestor of it has."""
    text = built.statement.text
    written = context.neighbours.resolution.parent(built.statement) or ""
    taken = context.neighbours.resolution.taken[written]
    module = context.neighbours.resolution.neighbours[taken.neighbour].module
    found = list(_REMOVAL.finditer(lexer.code_only(text)))
    known = _attributes(taken.name, module, context.library) if found else None
    renamer = context.neighbours.neighbours[taken.neighbour].definitions.renamer
    names = None if known is None else set(map(renamer.name, known)) | known
    for match in found:
        if names is not None and match[1] not in names:
            from modular_converter.rules import remove_unknown_attribute

            line = built.statement.line + text.count("\n", 0, match.start(1))
            place = locate_word(context.path, match[1], context.source, line)
            yield remove_unknown_attribute.diagnose(place, match[1], taken.name, candidates=names)


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
    context: Context, built: BuiltClass, method: Method, behind: list[ast.stmt], inherited: Method
) -> Iterator[Diagnostic]:
    """`del self.x` among the statements behind the `super()` call of a method."""
    for statement in behind:
        for target in statement.targets if isinstance(statement, ast.Delete) else []:
            if not (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"):
                continue
            place = context.at_node(target, built.statement, method)
            assigned = _assigned_at_top(inherited)
            if target.attr not in assigned:
                from modular_converter.rules import del_unknown_attribute

                parent = context.neighbours.resolution.parent(built.statement) or ""
                yield del_unknown_attribute.diagnose(place, target.attr, method.name, parent, candidates=assigned)
            elif readers := _readers(context, built, target.attr):
                from modular_converter.rules import del_still_read

                yield del_still_read.diagnose(place, target.attr, built.name, readers)


def _assigned_at_top(method: Method) -> set[str]:
    """The attributes that a method assigns at the top level of its body."""
    found = re.findall(r"^([ \t]+)self\.(\w+)[ \t]*(?::|=(?!=))", method.text, re.MULTILINE)
    return {name for space, name in found if len(space) == 2 * method.indent}


def _readers(context: Context, built: BuiltClass, attribute: str) -> tuple[str, ...]:
    """The methods of a generated class that read an attribute which nothing in it or its visible bases binds."""
    file = next(file for file in context.collection.files if built.name in file.definitions)
    stored, defined = rf"(?:self\.|def ){attribute}\b[ \t]*(?:=(?!=)|:|\(|,)", rf"{attribute}[ \t]*[:=]"
    binds = re.compile(rf"^[ \t]+(?:{stored}|{defined})", re.MULTILINE)
    if any(binds.search(lexer.code_only(base.text)) for base in bases_within(built.name, file.definitions)):
        return ()
    reads = re.compile(rf"\bself\.{attribute}\b(?![ \t]*=(?!=))")
    own = methods(built.text)
    return tuple(name for name, method in own.items() if reads.search(lexer.code_only(method.text)))


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
        for name, caller in methods(definition.text).items()
        if call.search(lexer.code_only(caller.text))
    )


def _heirs(name: str, definitions: Mapping[str, GeneratedDefinition]) -> Iterator[GeneratedDefinition]:
    """A class and those that inherit from it within one generated file."""
    for definition in definitions.values():
        if definition.name == name or (
            name in definition.uses
            and definition.text.lstrip().startswith(("class ", "@"))
            and any(base.name == name for base in bases_within(definition.name, definitions))
        ):
            yield definition
