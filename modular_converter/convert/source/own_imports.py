"""The files beside a file may be imported in two ways: `.configuration_x` and `acme.models.x.configuration_x`. A conversion
works with the first; the generated files are written as the library writes its own.
"""

from __future__ import annotations

import os
from dataclasses import replace

from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import absolute_sources, relative_sources
from modular_converter.model import lexer
from modular_converter.model.module import Module, Statement
from modular_converter.settings.parent_folders import is_below


def own_folder_name(module: Module, library: Library) -> str:
    """The dotted name under which a module imports from its own folder: `acme.models.x`; "" if it does not."""
    folder = os.path.dirname(module.path)
    beginning = f".{os.path.basename(folder)}."
    for text in (one.text for one in module.statements if beginning in one.text):
        for start, end in absolute_sources(lexer.code_only(text)):
            dotted = text[start:end].rpartition(".")[0]
            if f".{dotted}.".endswith(beginning) and library.resolver.stem(dotted, folder) == folder:
                return dotted
    return ""


def folder_name(folder: str, library: Library) -> str:
    """The dotted name of a folder in the package of the settings; "" where it lies in no such package."""
    package = library.settings.package
    top = library.find_package(package, folder)
    if top is None or not is_below(folder, top):
        return ""
    return ".".join((package, *os.path.relpath(folder, top).split(os.sep))) if folder != top else package


def with_relative_imports(module: Module, folder_name: str) -> Module:
    """The module with the imports from its own folder, which has this dotted name, as relative ones; "" changes none."""
    if not folder_name:
        return module
    beginning = f"{folder_name}."
    statements = tuple(_relative(one, beginning) if beginning in one.text else one for one in module.statements)
    return replace(module, statements=statements)


def in_own_terms(module: Module, library: Library) -> Module:
    """The module with the imports from its own folder as relative ones."""
    return with_relative_imports(module, own_folder_name(module, library))


def _relative(statement: Statement, beginning: str) -> Statement:
    imports = tuple(
        replace(name, module="." + name.module.removeprefix(beginning))
        if name.name and name.module.startswith(beginning)
        else name
        for name in statement.imports
    )
    found = absolute_sources(lexer.code_only(statement.text))
    own = ((start, start + len(beginning), ".") for start, _ in found if statement.text.startswith(beginning, start))
    return replace(statement, imports=imports, text=lexer.replace_spans(statement.text, own))


def with_absolute_imports(text: str, folder_name: str) -> str:
    """A text with its imports from files beside it as absolute ones; "" changes none."""
    if not folder_name:
        return text
    found = (span for span in relative_sources(lexer.code_only(text)) if not text.startswith("..", span[0]))
    return lexer.replace_spans(text, ((start, start + 1, f"{folder_name}.") for start, _ in found))
