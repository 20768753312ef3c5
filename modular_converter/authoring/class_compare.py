"""Compare classes and their members apart from their layout."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

from modular_converter.authoring.normal_form import normal
from modular_converter.model.class_blocks import ClassBlock, Member, parse_class
from modular_converter.model.overriding import method_key


DOCSTRING, DECORATORS = "docstring", "decorators"
"""The keys of these parts of a class among the keys of members; a space keeps them apart from names."""


@functools.lru_cache(maxsize=1024)  # a class is compared with many
def parsed_class(text: str) -> ClassBlock:
    """A class taken apart."""
    return parse_class(text)


def other_layout(wanted: str, made: str) -> frozenset[str]:
    """The parts of a class that a conversion has generated in other words or another layout: members by their keys,
    "docstring", "decorators". A parent's text keeps the line breaks and comments of its author.
    """
    own, other = parsed_class(wanted), parsed_class(made)
    theirs = members_by_key(other.members)
    found = [
        key
        for key, one in members_by_key(own.members).items()
        if key not in theirs or one.render().strip() != theirs[key].render().strip()
    ]
    found += [DOCSTRING] * (own.docstring.strip() != other.docstring.strip())
    return frozenset(found + [DECORATORS] * (own.decorators != other.decorators))


def same_class(one: ClassBlock, other: ClassBlock) -> bool:
    """Whether two classes are equal apart from their layout."""
    return (
        one.bases == other.bases
        and list(map(ast.dump, one.node.keywords)) == list(map(ast.dump, other.node.keywords))
        and normal(one.decorators) == normal(other.decorators)
        and normal(one.docstring) == normal(other.docstring)
        and len(one.members) == len(other.members)
        and all(map(same_member, one.members, other.members))
    )


def same_member(one: Member, other: Member) -> bool:
    """Whether two members differ in their layout at most. Most that do not differ have the same text, which needs no trees."""
    if (one.lead, one.text, one.documentation) == (other.lead, other.text, other.documentation):
        return True
    if not one.is_function and has_blank_line(one) != has_blank_line(other):
        return False
    return (
        normal(one.lead) == normal(other.lead)
        and normal(one.text + one.documentation) == normal(other.text + other.documentation)
        and ast.dump(one.node) == ast.dump(other.node)
    )


def has_blank_line(member: Member) -> bool:
    """Whether an empty line stands directly above a member."""
    return re.match(r"[ \t]*\n", member.lead) is not None


def members_by_key(members: Sequence[Member]) -> dict[str, Member]:
    """The members by key; of several with one key the first."""
    found: dict[str, Member] = {}
    for member in members:
        if not member.carries_nothing:
            found.setdefault(member_key(member), member)
    return found


def member_key(member: Member) -> str:
    """The kind of a member and what it defines: two members with one key take the same place in a class."""
    if member.is_function:
        return f"def {method_key(member.function)}"
    return f"set {' '.join(sorted(member.binds))}" if member.is_attribute else f"do {normal(member.text)}"
