"""Attributes stand before methods, but nothing before what it reads."""

from __future__ import annotations

import pytest

from modular_converter.convert.inherit.bases import in_legal_order
from modular_converter.model.class_blocks import Member, parse_class


def ordered(parent: str, child: str, preferred: str) -> str:
    """The names of members in their order. Each is one statement that binds a name; `preferred` lists the names."""
    members: list[Member] = []
    for body in (parent, child):
        members += parse_class(f"class A:\n    {body}\n").members if body else ()
    by_name = {min(one.binds or one.touches): one for one in members}
    own = members[len(parent.split(";")) if parent else 0 :]
    names = {id(one): name for name, one in by_name.items()}
    found = in_legal_order([by_name[name] for name in preferred], members, own)
    return "".join(names[id(one)] for one in found)


@pytest.mark.parametrize(
    ("parent", "child", "preferred", "expected"),
    [
        ("a = 1; b = 2", "c = 3", "cba", "cba"),  # nothing speaks against it
        ("a = 1; b = a", "", "ba", "ab"),
        ("a = 1; b = a; c = b", "", "cba", "abc"),
        ("a = b; b = 1", "", "ba", "ab"),  # it reads another `b`, from above the class
        ("a = 1", "b = a", "ba", "ab"),
        ("a = x", "b = a", "ba", "ab"),
        ("a = []; b = a.append(1)", "c = a", "cab", "abc"),
        ("a = []; b = a.append(1); c = a.append(2)", "", "cba", "abc"),
        ("a = 1; b = x(2)", "", "ba", "ba"),
        ("a = b; b = a", "", "ba", "ab"),
        ("", "b = a; a = 1", "ab", "ba"),  # the child's own order counts among its members
    ],
)
def test_the_order_of_members(parent: str, child: str, preferred: str, expected: str) -> None:
    assert ordered(parent, child, preferred) == expected
