"""What `--allow` lets differ: docstrings and comments that become those of the parents, and definitions that nothing uses."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.authoring.normal_form import normal, without_comments
from modular_converter.authoring.sources import SourceFile
from modular_converter.convert.emit.imports import names_in_annotations
from modular_converter.convert.inherit.build import rename_class
from modular_converter.convert.schedule import reached
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.names import ModelNames
from modular_converter.model.class_blocks import ClassBlock, Member, block_lines, parse_class
from modular_converter.model.index import is_docstring
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import decorators_of, parse
from modular_converter.model.overriding import method_key


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

    def used(name: str) -> Collection[str]:
        one = definitions[name]
        return (one.uses | names_in_annotations(one.text, frozenset(definitions))) & definitions.keys()

    return reached(needed, used)


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


DOCSTRINGS, COMMENTS = "docstrings", "comments"


Parent = tuple[SourceFile, str]
"""A file and the name, in the target, of a class in it."""


def relax(
    flat: FlatModel, parents: Mapping[str, Parent], allowed: Collection[str], names: ModelNames
) -> tuple[FlatModel, dict[str, tuple[str, str]]]:
    """A flat model whose classes have the docstrings and comments of their parents; and each class that changes, with its
    own text and the new one.

    Args:
        parents: the classes with the parents that they have, or may have when only code counts.
        allowed: what may differ: `docstrings`, `comments`.
        names: the names of the models of the library.
    """
    accepted: dict[str, tuple[str, str]] = {}
    for name, (source, parent) in parents.items():
        old = flat.definitions[name][1].text
        new = _with_words(old, source.definitions[parent].text, parent, allowed, names)
        if new is not None and new != old:
            accepted[name] = (old, new)
    files = tuple(_with_classes(file, accepted) for file in flat.files)
    return replace(flat, files=files), accepted


def _with_words(text: str, parent: str, name: str, allowed: Collection[str], names: ModelNames) -> str | None:
    """A class with the words of its parent wherever its code is the parent's; None where it cannot be read.

    Args:
        parent: the text of the parent, which is called `name` in it.
    """
    try:
        own = parse_class(text)
        inherited = parse_class(parent if own.node.name == name else rename_class(parent, name, own.node.name, names))
        new = _joined(own, inherited, "".join(block_lines(text)[1]), allowed)
        same = _code(new, allowed) == _code(text, allowed)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return new if same else None


def _joined(own: ClassBlock, inherited: ClassBlock, text: str, allowed: Collection[str]) -> str:
    """The lines of a class; members that differ from the parent's only in words are replaced by the parent's."""
    lines = text.split("\n")
    header = "".join(f"{line}\n" for line in lines[: own.body_line - 1])
    theirs = {_key(member): member for member in inherited.members}
    docstring = inherited.docstring if DOCSTRINGS in allowed and inherited.docstring else own.docstring
    members = (_either(member, theirs.get(_key(member)), allowed) for member in own.members)
    return (header + docstring + "".join(member.render() for member in members)).rstrip("\n")


def _either(own: Member, inherited: Member | None, allowed: Collection[str]) -> Member:
    if inherited is None or _code(own.text, allowed, member=True) != _code(inherited.text, allowed, member=True):
        return own
    keeps_lead = COMMENTS not in allowed and normal(own.lead) != normal(inherited.lead)
    return own if keeps_lead else inherited


def _key(member: Member) -> str:
    if member.is_function:
        return f"def {method_key(member.function)}"
    return " ".join(sorted(member.binds)) or normal(member.text)


def _code(text: str, allowed: Collection[str], *, member: bool = False) -> str:
    """The parts that two texts must share: the syntax tree, without docstrings if these may differ, and the comments
    unless they may differ.
    """
    tree = parse(f"class _:\n{text}" if member else text)
    if DOCSTRINGS in allowed:
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt) and is_docstring(body[0]):
                body[0] = ast.Pass()
    shown = ast.dump(tree)
    return shown if COMMENTS in allowed else shown + _comments(text)


def _comments(text: str) -> str:
    """The comments of a text."""
    bare = without_comments(text).split("\n")
    pairs = zip(text.split("\n"), bare)
    return "\n".join(full[len(short) :].strip() for full, short in pairs if full != short)


def _with_classes(file: FlatFile, accepted: Mapping[str, tuple[str, str]]) -> FlatFile:
    """A file with the new texts of its classes."""
    text = file.text
    statements = []
    for statement in file.module.statements:
        old, new = accepted.get(statement.name, ("", ""))
        if old and statement.text == old:
            text = text.replace(old, new)
            statement = replace(statement, text=new, known_uses=None)
        statements.append(statement)
    return replace(file, text=text, module=replace(file.module, statements=tuple(statements)))
