"""Docstrings and comments taken over from parents, where a person accepts that these may differ.

No other step is concerned: the flat model with the parents' words is proven like any other, and its definitions have
the same code as the original.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.authoring.normal_form import normal, without_comments
from modular_converter.authoring.sources import SourceFile
from modular_converter.convert.inherit.build import rename_class
from modular_converter.convert.source.names import ModelNames
from modular_converter.model.class_blocks import ClassBlock, Member, block_lines, parse_class
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import parse
from modular_converter.model.overriding import method_key


DOCSTRINGS, COMMENTS = "docstrings", "comments"


@dataclass(frozen=True)
class Relaxed:
    """A flat model with words of its parents."""

    flat: FlatModel
    accepted: Mapping[str, tuple[str, str]]
    """Class -> its own text, and the text with its parent's words."""


Parent = tuple[SourceFile, str]
"""A file and the name, in the target, of a class in it."""


def relax(flat: FlatModel, parents: Mapping[str, Parent], allowed: Collection[str], names: ModelNames) -> Relaxed:
    """Give the classes of a flat model the docstrings and comments of their parents.

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
    return Relaxed(replace(flat, files=files), accepted)


def _with_words(text: str, parent: str, name: str, allowed: Collection[str], names: ModelNames) -> str | None:
    """A class with the words of its parent wherever its code is the parent's; None where it cannot be read.

    Args:
        text: the class.
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
