"""From the faults of generated texts to findings at the places in the modular file that they come from."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from modular_converter.convert.emit.formatters import Formatted, UndefinedName
from modular_converter.convert.examine.faults import (
    Fault,
    binding_below,
    compile_error,
    definition_at,
    find_faults,
    is_of_other_model,
    is_read,
    parsed,
    place_in_modular,
    top_level_names,
)
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, rename_neighbours
from modular_converter.convert.inherit.resolve import ResolvedImports, defining_module, open_target, resolve_imports
from modular_converter.convert.source.library import Library
from modular_converter.findings import (
    Conversion,
    ConversionError,
    Finding,
    Origin,
    Severity,
    did_you_mean,
    locate_parse_error,
    locate_word,
)
from modular_converter.model import lexer
from modular_converter.model.class_blocks import SUPER_KWARGS
from modular_converter.rules import base_classes, input_files, tool_errors


UNREADABLE = (tool_errors.INVALID_RESULT, tool_errors.FORMATTER_FAILED)


def examine(conversion: Conversion, result: Formatted, library: Library) -> list[Finding]:
    """The errors that keep the formatted texts of one modular file from being written.

    They stand at places in the modular file. If every text is already on disk, byte for byte, nothing is parsed again,
    and only findings of the formatter and its linter are reported.
    """
    refused = [result.failures[path] for path in conversion.files if path in result.failures]
    examination = _Examination(conversion, result.texts, library)
    found = []
    if all(failure.rule is tool_errors.INVALID_RESULT for failure in refused):
        found = [error for path in conversion.files for error in examination.undefined(path, result.undefined or {})]
        if any(library.text_if_readable(path) != result.texts[path] for path in conversion.files):
            found += [error for path in conversion.files for error in examination.others(path)]
    found = found or refused
    wrong = examination.wrong_source() if any(error.rule in UNREADABLE for error in found) else None
    return [wrong] if wrong else found


@dataclass(frozen=True)
class _Examination:
    conversion: Conversion
    texts: Mapping[str, str]
    library: Library
    _origins: dict[str, Mapping[str, Origin]] = field(default_factory=dict)

    def undefined(self, path: str, names: Mapping[str, tuple[UndefinedName, ...]]) -> Iterator[Finding]:
        """One error for each name and definition that uses it."""
        seen: set[tuple[str, str]] = set()
        text = self.texts[path]
        for one in sorted(names.get(path, ()), key=lambda one: not is_read(one.name, one.line, text)):
            place = _Place(self, path, one.line, one.name)
            if (place.definition, one.name) not in seen:
                seen.add((place.definition, one.name))
                advice = advice_for(one.name, place.definition, one.line, text, self._resolution, self.library)
                found = tool_errors.undefined_name(
                    place.location,
                    one.name,
                    place.words,
                    advice,
                    later=binding_below(one.name, one.line, text),
                    is_own=one.name == place.definition,
                )
                yield found if is_read(one.name, one.line, text) else found.with_severity(Severity.WARNING)

    def others(self, path: str) -> Iterator[Finding]:
        """The faults that a text shows when it is parsed."""
        for fault in find_faults(
            self.texts[path],
            lambda module: is_of_other_model(module, path, self.library),
            lambda module: self._names_beside(path, module),
        ):
            # A parent's base in another file, which the modular file does not name, is reported by MC312.
            if fault.rule is not base_classes.FOREIGN_BASE or fault.detail.partition(".")[0] in self._own_words:
                yield self._diagnose(path, fault)

    @functools.cached_property
    def _own_words(self) -> frozenset[str]:
        return lexer.identifiers(self.library.text_if_readable(self.conversion.path) or "")

    @functools.cached_property
    def _resolution(self) -> ResolvedImports | None:
        try:
            return resolve_imports(open_target(self.conversion.path, self.library), self.library)
        except ConversionError:
            return None

    @functools.cached_property
    def _neighbourhood(self) -> Neighbourhood | None:
        return rename_neighbours(self._resolution, self.library) if self._resolution else None

    def origins(self, path: str) -> Mapping[str, Origin]:
        """The origins of the definitions of a generated file, by name."""
        if path not in self._origins:
            self._origins[path] = {one.name: one for one in reversed(self.conversion.origins.get(path, ()))}
        return self._origins[path]

    def _diagnose(self, path: str, fault: Fault) -> Finding:
        place = _Place(self, path, fault.line, fault.detail)
        if fault.rule is tool_errors.INVALID_RESULT:
            return tool_errors.invalid_result(place.location, fault.detail, place.words)
        if fault.rule is base_classes.INCONSISTENT_BASES:
            return base_classes.inconsistent_bases(place.location, fault.definition, fault.detail)
        if fault.rule is base_classes.FOREIGN_BASE:
            module = self._module_of(fault.detail)
            path, name = self.conversion.path, fault.definition
            is_inner = bool(self._resolution and name not in self._resolution.target.module.classes)
            where = locate_word(path, name, self.library.text(path)) if is_inner else place.location
            return base_classes.foreign_base(where, name, fault.detail, module=module, is_inner=is_inner)
        if fault.rule is tool_errors.TYPING_ONLY_NAME:
            return tool_errors.typing_only_name(place.location, fault.detail, place.words)
        parent = parent_for(fault.detail, fault.module, self._neighbourhood)
        return tool_errors.missing_in_sibling(place.location, fault.detail, fault.module, place.words, parent=parent)

    def _module_of(self, base: str) -> str:
        """The module that defines a base which the modular file imports from the folder of a model; "" for any other."""
        imported = self._resolution.target.module.imported.get(base) if self._resolution else None
        if imported is None:
            return ""
        return defining_module(imported.name, imported.module, os.path.dirname(self.conversion.path), self.library)

    def wrong_source(self) -> Finding | None:
        """The error of the modular file, or of one that it inherits from, which parses but does not compile."""
        modular = self.conversion.path
        neighbours = self._resolution.neighbours.values() if self._resolution else ()
        for path in (modular, *(one.path for one in neighbours)):
            text = self.library.text_if_readable(path) or ""
            error = compile_error(text)
            if error is not None:
                needed_by = "" if path == modular else modular
                found = input_files.syntax_error(*locate_parse_error(path, error), neighbour_of=needed_by)
                return found.with_source(text)
        return None

    def _names_beside(self, path: str, module: str) -> frozenset[str] | None:
        """The names of a module in the folder of a generated file, as this run leaves it."""
        beside = os.path.join(os.path.dirname(path), *module.split(".")) + ".py"
        text = self.texts.get(beside)
        if text is None:
            text = self.library.text_if_readable(beside)
        return None if text is None else top_level_names(text, module)


class _Place:
    """Where a fault of a generated text comes from."""

    def __init__(self, examination: _Examination, path: str, line: int, word: str) -> None:
        conversion, text = examination.conversion, examination.texts[path]
        self.definition, line = definition_at(text, line, word)
        origin = examination.origins(path).get(self.definition)
        modular = examination.library.text_if_readable(conversion.path) or ""
        self.location = place_in_modular(conversion.path, modular, origin, word)
        generated = f"{os.path.basename(path)}:{line}" if line else os.path.basename(path)
        copied = origin is not None and origin.path != conversion.path
        self.words = f"`{self.definition}` ({generated})" if self.definition else generated
        if copied:
            assert origin is not None
            self.words += f", which comes along from {os.path.basename(origin.path)}:{origin.line},"


def advice_for(
    name: str, definition: str, line: int, text: str, resolution: ResolvedImports | None, library: Library
) -> str:
    """What to write about `name`, which is undefined on line `line` of a generated text, in its top-level `definition`."""
    method = _method_at(definition, line, text)
    if name == SUPER_KWARGS:
        return f"The parent's parameters take the place of `**{name}`. Name the parameter that you mean."
    if name == definition or binding_below(name, line, text):
        written = resolution.target.module.definitions.get(definition) if resolution else None
        if method and written is not None and not re.search(rf"\bdef {method}\b", written.text):
            return f'Override the inherited method `{method}`, with the annotation `"{name}"` in quotes.'
        base = next((one for one in written.bases if one in resolution.taken), "") if written and resolution else ""
        if name == definition and base:  # no class at the top level, but an assignment, or a class under `if`
            return f"Give your class another name: the generated file has `{base}` of the neighbour as `{name}`."
        above = "" if name == definition else "; otherwise define it above its use"
        return f'If it is an annotation, write `"{name}"` in quotes{above}.'
    if resolution is not None:
        if method and name in _parent_parameters(definition, method, resolution):
            return (
                f"It is a parameter of the parent's `{method}`, but not of the override. "
                f"Add it to the signature, or end the signature with `**super_kwargs`."
            )
        if name in resolution.taken:
            neighbour, asked = resolution.neighbours[resolution.taken[name].neighbour], resolution.taken[name].name
            if asked not in neighbour.module.names:
                hint = did_you_mean(asked, neighbour.module.definitions)
                return f"{hint}`{neighbour.dotted}` has no `{asked}`. Correct the import, or define `{name}` yourself."
        for neighbour in resolution.neighbours.values():
            if name in neighbour.module.definitions:
                return f"Import it: `from {neighbour.dotted} import {name}`."
        for neighbour in resolution.neighbours.values():
            names = top_level_names(library.text(neighbour.path))
            if names is not None and name in names:
                return (
                    f"`{neighbour.dotted}` binds it in a statement that is not carried along (under `if`, `for` or "
                    f"`with`, say). Define `{name}` in the modular file."
                )
    imported = frozenset(resolution.taken) if resolution is not None else frozenset()
    hint = did_you_mean(name, ((top_level_names(text) or frozenset()) | imported) - {name})
    return f"{hint}{'Otherwise import' if hint else 'Import'} or define `{name}` in the modular file."


def parent_for(name: str, module: str, neighbours: Neighbourhood | None) -> tuple[str, str] | None:
    """The module and the name in a neighbour's folder that renaming would turn into `name` of the sibling `module`."""
    for dotted, renamed in neighbours.neighbours.items() if neighbours else ():
        for imported in renamed.neighbour.module.imported.values():
            target = renamed.import_in_target(imported)
            if (target.module, target.name) == (module, name) and imported.module.startswith("."):
                return dotted.rpartition(".")[0] + imported.module, imported.name
    return None


def _method_at(definition: str, line: int, text: str) -> str:
    """The method of a class in which a line of a generated text stands, "" for none."""
    methods = (
        method
        for node in parsed(text).body
        if isinstance(node, ast.ClassDef) and node.name == definition
        for method in node.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return next((one.name for one in methods if one.lineno <= line <= (one.end_lineno or 0)), "")


def _parent_parameters(definition: str, method: str, resolution: ResolvedImports) -> set[str]:
    """The parameters that a method has in the parent of a class of the modular file."""
    statement = resolution.target.module.definitions.get(definition)
    base = resolution.parent(statement) if statement else None
    parent = resolution.definition(base) if base else None
    return {
        argument.arg
        for node in ast.walk(parsed(parent.text if parent else ""))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == method
        for argument in ast.walk(node.args)
        if isinstance(argument, ast.arg)
    }
