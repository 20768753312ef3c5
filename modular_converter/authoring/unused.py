"""The parts of a file written by hand that no generated file has: statements that do nothing, and definitions that
nothing uses.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.convert.emit.imports import names_in_annotations
from modular_converter.convert.source.library import Library
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import decorators_of, parse


UNUSED = "unused"
"""The word of `--allow` that lets unused definitions go."""
_WITHOUT_EFFECT = frozenset({"torch.jit.script", "torch.jit.script_if_tracing", "functools.lru_cache", "lru_cache"})
"""The decorators that enter a function nowhere."""
_VIEWS = frozenset({"items", "keys", "values"})
"""The methods that a constant may call and still have no effect."""


def is_idle(statement: Statement) -> bool:
    """Whether a statement does nothing: `if TYPE_CHECKING: pass`, which is left where imports were removed."""
    return statement.role is Role.OTHER and not statement.name and _is_idle(parse(statement.text).body[0])


def _is_idle(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        is_plain = isinstance(node.test, (ast.Name, ast.Attribute))
        return is_plain and all(map(_is_idle, (*node.body, *node.orelse)))
    return isinstance(node, ast.Pass)


def unused_definitions(file: FlatFile, library: Library) -> list[str]:
    """The functions and constants of a file that no conversion generates and nothing would miss: no class uses them,
    `__all__` does not name them, they have no effect when they are defined, and no file of the package imports them.
    """
    definitions = file.module.definitions
    if file.is_generated or "__all__" not in definitions:  # without `__all__`, `import *` takes every name
        return []
    in_strings = {name for name in definitions if f'"{name}"' in file.text or f"'{name}'" in file.text}
    used = _needed(file.module, {*file.module.exported, *in_strings})
    kept = {name for name, one in definitions.items() if name in used or not _may_go(one)}
    kept |= _named_elsewhere(file.path, definitions.keys() - kept, library)
    kept = _needed(file.module, kept)
    return [name for name in definitions if name not in kept]


def without_unused(flat: FlatModel, library: Library) -> tuple[FlatModel, dict[str, list[str]]]:
    """A model without its unused definitions, and these by file."""
    going = {file.path: names for file in flat.files if (names := unused_definitions(file, library))}
    files = tuple(_without(file, going.get(file.path, ())) for file in flat.files)
    return replace(flat, files=files), going


def _without(file: FlatFile, names: Collection[str]) -> FlatFile:
    statements = tuple(one for one in file.module.statements if one.name not in names)
    return replace(file, module=replace(file.module, statements=statements)) if names else file


def _needed(module: Module, kept: Collection[str]) -> set[str]:
    """The definitions that are kept, those that generated files have, and those that one of these uses."""
    definitions = module.definitions
    needed = {name for name, one in definitions.items() if one.role is Role.CLASS or name in kept}
    for statement in module.statements:
        if statement.name not in definitions:
            needed |= (statement.uses | statement.condition) & definitions.keys()
    todo = list(needed)
    while todo:
        one = definitions[todo.pop()]
        used = one.uses | names_in_annotations(one.text, frozenset(definitions))
        new = (used & definitions.keys()) - needed
        needed |= new
        todo += new
    return needed


def _may_go(statement: Statement) -> bool:
    """Whether a function or an assignment has no effect but its name."""
    if statement.name.startswith("__") or statement.is_store or statement.joined or statement.binds:
        return False
    node = parse(statement.text).body[0]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return all(one in _WITHOUT_EFFECT for one in decorators_of(node))
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return all(isinstance(one, ast.Attribute) and one.attr in _VIEWS for one in calls)


def _named_elsewhere(path: str, names: Collection[str], library: Library) -> set[str]:
    """The names that another file of the package imports from a file, or names with its module."""
    if not names:
        return set()
    stem = os.path.splitext(os.path.basename(path))[0]
    imported = re.compile(rf"\b{re.escape(stem)}\s+import\s*(\([^)]*\)|[^\n\\]*(?:\\\n[^\n\\]*)*)")
    attribute = re.compile(rf"\b{re.escape(stem)}\.({'|'.join(map(re.escape, names))})\b")
    found: set[str] = set()
    for text in _texts_beside(path, stem, library):
        found.update(attribute.findall(text))
        found.update(word for line in imported.findall(text) for word in re.findall(r"\w+", line))
    return found & {*names}


def _texts_beside(path: str, stem: str, library: Library) -> Iterator[str]:
    """The texts of the other Python files of the package of a file that name its module."""
    top = os.path.dirname(os.path.dirname(path))
    while library.exists(os.path.join(os.path.dirname(top), "__init__.py")):
        top = os.path.dirname(top)
    for folder, _, files in os.walk(top):
        for name in files:
            other = os.path.join(folder, name)
            if name.endswith(".py") and other != path:
                text = library.text_if_readable(other) or ""
                if stem in text:
                    yield text
