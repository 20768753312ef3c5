"""The pieces of a merged class, from its members: each knows the syntax node that it comes from."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from modular_converter.model.bindings import Function
from modular_converter.model.class_blocks import ClassBlock, ClassChange, ClassPiece, Member, TakenLines
from modular_converter.model.index import is_docstring


def pieces_of(
    child: ClassBlock,
    parent: ClassBlock,
    parts: tuple[str, str, str],
    members: Sequence[Member],
    changes: tuple[Sequence[ClassChange], Sequence[ClassChange]],
) -> tuple[ClassPiece, ...]:
    """The pieces of the class that was merged from `child` and `parent`.

    Args:
        parts: its decorators, header and docstring.
        members: its members in their order.
        changes: the statements below it that change it, the parent's and the child's.
    """
    below = [
        ClassPiece(lines := one.text.count("\n"), (TakenLines(bool(is_own), one.line, one.line + lines - 1),))
        for is_own, some in enumerate(changes)
        for one in some
    ]
    return (*(piece for piece in _pieces(child, parent, parts, members) if piece.lines), *below)


def _pieces(
    child: ClassBlock, parent: ClassBlock, parts: tuple[str, str, str], members: Sequence[Member]
) -> Iterator[ClassPiece]:
    decorators, header, docstring = (part.count("\n") for part in parts)
    yield ClassPiece(decorators, (TakenLines(bool(child.decorators), 1, decorators),))
    yield ClassPiece(
        header, tuple(TakenLines(one is child, one.node.lineno, one.body_line - 1) for one in (child, parent))
    )
    yield ClassPiece(docstring, _of_docstring(child, parent, docstring))
    own = {id(member.node): member for member in child.members}
    inherited = {id(member.node): member for member in parent.members}
    for member in members:
        source = own.get(id(member.node)) or inherited.get(id(member.node))
        if source is None:  # `del x`, which a stub of the child asks for
            yield ClassPiece(member.render().count("\n"), _of_stub(member, child))
        else:
            yield from _of_member(member, source, id(member.node) in own)


def _of_docstring(child: ClassBlock, parent: ClassBlock, lines: int) -> tuple[TakenLines, ...]:
    stray = next((member for member in child.members if is_docstring(member.node)), None)
    if child.docstring or stray is None:
        block = child if child.docstring else parent
        return (TakenLines(block is child, block.body_line, block.body_line + lines - 1),)
    return (TakenLines(True, stray.line, stray.line + lines - 1),)


def _of_stub(member: Member, child: ClassBlock) -> tuple[TakenLines, ...]:
    return tuple(_whole(one, one.text, True) for one in child.members if one.binds & member.binds)[:1]


def _of_member(member: Member, source: Member, is_own: bool) -> Iterator[ClassPiece]:
    place = member.overridden if is_own else None
    lead = place if place is not None and member.lead == place.lead and member.lead != source.lead else source
    lines = member.lead.count("\n")
    yield ClassPiece(lines, (TakenLines(is_own and lead is source, lead.line - lines, lead.line - 1),))
    taken = [_whole(source, source.text, is_own)]
    if place is not None and (member.statements or not member.is_function):
        taken.append(_whole(place, place.text, False))
    yield ClassPiece(member.text.count("\n"), tuple(taken), member.statements)
    below = source if place is None or source.documentation else place
    lines, start = member.documentation.count("\n"), below.line + below.text.count("\n")
    yield ClassPiece(lines, (TakenLines(is_own and below is source, start, start + lines - 1),))


def _whole(member: Member, text: str, is_own: bool) -> TakenLines:
    return TakenLines(is_own, member.line, member.line + text.count("\n") - 1)


def taken_statements(nodes: Sequence[ast.stmt], child: Function, parent: Function) -> tuple[TakenLines, ...]:
    """The sources of the statements of a merged method, which are nodes of the two methods or placeholders for them."""
    inherited = {id(node) for node in parent.body}
    inherited |= {id(value) for node in parent.body if (value := getattr(node, "value", None)) is not None}
    return tuple(
        TakenLines(
            id(node) not in inherited and id(getattr(node, "value", None)) not in inherited,
            min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]),
            node.end_lineno or node.lineno,
        )
        for node in nodes
    )
