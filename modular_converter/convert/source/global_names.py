"""Rename globals of a module in code: attributes, parameters, keywords and local names stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from modular_converter.model import lexer
from modular_converter.model.bindings import ScopeKind, bindings_of
from modular_converter.model.nodes import parse, walk


if TYPE_CHECKING:
    import libcst as cst


def rename_globals(text: str, names: Mapping[str, str]) -> str:
    """The text of a top-level statement with new names for some globals.

    Raises:
        SyntaxError: libcst cannot parse the text, although Python can.
    """
    pattern = _pattern(names)
    if not pattern.search(text):
        return text
    if not _has_other_meanings(text, names):
        return _rename_words(text, pattern, names)
    return _rename_uses(text, names)


def rename_imported(text: str, names: Mapping[str, str]) -> str | None:
    """The text of a module that imports some names with other ones, in the imports and in all uses; None where one is
    a parameter, a local name, an attribute of a class or a keyword, too.
    """
    return None if _has_other_meanings(text, names) else _rename_words(text, _pattern(names), names)


def _pattern(names: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?!\w)")


def _has_other_meanings(text: str, names: Mapping[str, str]) -> bool:
    """Whether one of the names is a parameter, a local name, an attribute of a class or a keyword anywhere in a text."""
    tree = parse(text)
    if any(isinstance(node, ast.keyword) and node.arg in names for node in walk(tree)):
        return True
    return any(
        one.kind is not ScopeKind.BLOCK and not one.local.isdisjoint(names) for one in bindings_of(tree).everywhere
    )


def _rename_words(text: str, pattern: re.Pattern[str], names: Mapping[str, str]) -> str:
    """Rename every identifier of that spelling in the code of a text, which takes no scopes."""
    found = pattern.finditer(lexer.code_only(text))
    return lexer.replace_spans(text, ((*match.span(), names[match.group()]) for match in found))


def _rename_uses(text: str, names: Mapping[str, str]) -> str:
    """Rename the uses of the globals that libcst finds. Importing it takes longer than converting most models."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper

    bindings = "".join(f"import {name}\n" for name in names)  # so that each name has a binding for its uses to lead to
    try:
        module = cst.parse_module(bindings + text)
    except cst.ParserSyntaxError as error:
        raise SyntaxError(error.message) from None
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    changed = {id(node): names[node.value] for node in _uses(wrapper, names)}
    renamed = wrapper.module.visit(_renamer(changed, names))
    return renamed.code[len(bindings) :]


def _uses(wrapper: cst.MetadataWrapper, names: Mapping[str, str]) -> list[cst.Name]:
    """The nodes that read or bind one of the globals."""
    import libcst as cst
    from libcst.metadata import Assignment, ScopeProvider

    scope = wrapper.resolve(ScopeProvider)[wrapper.module]
    assert scope is not None
    found: list[cst.Name] = []
    for name in names:
        for assignment in scope[name]:
            nodes = [access.node for access in assignment.references]
            if isinstance(assignment, Assignment):
                nodes.append(assignment.node)  # type: ignore[arg-type]
            found += [node for node in nodes if isinstance(node, cst.Name) and node.value == name]
    return found


def _renamer(changed: Mapping[int, str], names: Mapping[str, str]) -> cst.CSTTransformer:
    import libcst as cst

    class Renamer(cst.CSTTransformer):
        """Gives the chosen nodes, told by their identity, their new names."""

        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
            new = changed.get(id(original_node))
            return updated_node.with_changes(value=new) if new else updated_node

        def leave_Global(self, original_node: cst.Global, updated_node: cst.Global) -> cst.Global:
            items = [
                item.with_changes(name=cst.Name(names.get(item.name.value, item.name.value)))
                for item in updated_node.names
            ]
            return updated_node.with_changes(names=items)

    return Renamer()
