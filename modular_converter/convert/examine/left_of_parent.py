"""The names that the parent's code in a merged class reads from its module."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from modular_converter.convert.examine.code import globals_read
from modular_converter.model.class_blocks import ClassBlock, ClassPiece, Member, parse_class
from modular_converter.model.overriding import AddedDecorators, inherited_decorators


def left_of_parent(
    child_text: str, parent_text: str, pieces: Sequence[ClassPiece], added: AddedDecorators
) -> frozenset[str]:
    """The globals that the parent's code reads in the class that was merged from both and has these pieces."""
    child, parent = parse_class(child_text), parse_class(parent_text)
    # A member that others need while the class is made stays, though the child replaces it: `f` in `alias = f`.
    stays = {piece.taken[0].first for piece in pieces if piece.taken and not piece.taken[0].is_own}
    own = {name: member for member in child.members for name in member.binds}
    body = "".join(
        member.text
        if member.line in stays
        else _taken_by([own[name] for name in member.binds if name in own], member, added)
        for member in parent.members
    )
    return globals_read(f"{_header(child, parent)}\n{body}    pass\n")


def _taken_by(overrides: Sequence[Member], member: Member, added: AddedDecorators) -> str:
    """The parts of the parent's member that the child's member of the same name takes over."""
    if not overrides or any("super" in one.text or _is_bare(one.node) for one in overrides):  # `**super_kwargs` too
        return member.text
    if not member.is_function:
        return ""
    taken = [inherited_decorators(one.function, member.function, added) for one in overrides if one.is_function]
    return "".join(f"    {ast.unparse(one)}\n" for one in taken[-1]) if taken else ""


def _header(child: ClassBlock, parent: ClassBlock) -> str:
    """The parent's bases, and its decorators where the child has none of its own."""
    decorators = () if child.decorators else map(ast.unparse, parent.node.decorator_list)
    return "".join(f"@{one}\n" for one in decorators) + f"class _({', '.join(parent.bases)}):"


def _is_bare(node: ast.stmt) -> bool:
    """Whether this is an annotation, which takes the parent's value."""
    return isinstance(node, ast.AnnAssign) and node.value is None
