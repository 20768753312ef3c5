"""A class taken apart: every line of its body in one member, whatever its layout."""

from __future__ import annotations

import pytest

from modular_converter.model.class_blocks import Member, block_lines, parse_class


def members(body: str) -> list[tuple[str, str, str]]:
    """What stands above each member, its text, and its documentation."""
    found = parse_class(f"class A:\n{body}").members
    return [(one.lead, one.text, one.documentation) for one in found]


def only(statement: str) -> Member:
    (member,) = parse_class(f"class A:\n    {statement}\n").members
    return member


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    a = 1\n\n    # of b\n    b = 2", [("", "    a = 1\n", ""), ("\n    # of b\n", "    b = 2\n", "")]),
        ("    a = 1; b = 2  # both\n", [("", "    a = 1\n", ""), ("", "    b = 2  # both\n", "")]),
        ("    a = 'é'; b = 'ü'; c = 3\n", [("", f"    {one}\n", "") for one in ("a = 'é'", "b = 'ü'", "c = 3")]),
        ("    a = [\n        1]; b = 2\n", [("", "    a = [\n        1]\n", ""), ("", "    b = 2\n", "")]),
        (
            "    # of f\n    @wrap\n    # of all\n    def f(self):\n        pass\n        # in\n    # out\n    a = 1\n",
            [
                ("    # of f\n", "    @wrap\n    # of all\n    def f(self):\n        pass\n        # in\n", ""),
                ("    # out\n", "    a = 1\n", ""),
            ],
        ),
        ('    a = 1\n    # more\n    """Doc."""\n', [("", "    a = 1\n", '    # more\n    """Doc."""\n')]),
        ('    a: int\n    "One."\n    "Two."\n', [("", "    a: int\n", '    "One."\n    "Two."\n')]),
        ('    a = 1\n\n    "No."\n', [("", "    a = 1\n", ""), ("\n", '    "No."\n', "")]),
        (
            '    a = 1\n    # x\n\n    "No."\n',
            [("", "    a = 1\n", ""), ("    # x\n\n", '    "No."\n', "")],
        ),
        (
            "    def f(self): pass\n    'No.'\n",
            [("", "    def f(self): pass\n", ""), ("", "    'No.'\n", "")],
        ),
    ],
)
def test_the_members_of_a_body(body: str, expected: list[tuple[str, str, str]]) -> None:
    assert members(body) == expected


@pytest.mark.parametrize(
    ("text", "decorators", "docstring", "body_line"),
    [
        ("class A:\n    pass\n", "", "", 2),
        ("class A: pass", "", "", 2),
        ("@wrap(\n    1\n)\n# and\n@other\nclass A(\n    B\n):  # is\n\n    # above\n    a = 1\n", None, "", 9),
        ('class A:\n    # above\n    """Doc."""\n\n    a = 1\n', "", '    # above\n    """Doc."""\n', 2),
        ('class A: "Doc."; a = 1\n', "", '    "Doc."\n', 2),
        ("class A:\n    @wrap\n    def f(self): pass\n", "", "", 2),
        ("class A:\n    @(\n        wrap\n    )\n    def f(self): pass\n", "", "", 2),
    ],
)
def test_the_parts_of_a_class(text: str, decorators: str | None, docstring: str, body_line: int) -> None:
    found = parse_class(text)
    assert found.docstring == docstring and found.body_line == body_line
    assert found.decorators == ("@wrap(\n    1\n)\n# and\n@other\n" if decorators is None else decorators)
    lines = block_lines(text)[1]
    whole = "".join(lines[: found.body_line - 1]) + docstring + "".join(one.render() for one in found.members)
    assert ";" in text or whole == "".join(lines)
    assert all(lines[one.line - 1].strip().startswith(one.text.split()[0]) for one in found.members) or ";" in text


@pytest.mark.parametrize("text", ["class A:\n  a = 1\n", "class A:\n\ta = 1\n", "class A: a = 1"])
def test_any_body_is_given_back_with_four_spaces(text: str) -> None:
    assert [one.render() for one in parse_class(text).members] == ["    a = 1\n"]


@pytest.mark.parametrize(
    ("statement", "traits"),
    [
        ("pass", "nothing"),
        ("...", "nothing"),
        ("a", "nothing"),
        ("a.b", "nothing"),
        ("a()", ""),
        ("a = 1", "attribute"),
        ("a: int", "attribute"),
        ("a += 1", ""),
        ("def f(self): pass", "function"),
        ("async def f(self): pass", "function"),
        ("class B: pass", ""),
        ("with a: b = 1", ""),
        ("if a: b = 1", "skipped"),
        ("for a in b: pass", "skipped"),
        ("while a: pass", "skipped"),
        ("try: pass\n    finally: pass", "skipped"),
        ("match a:\n        case _: pass", "skipped"),
        ("del a", ""),
    ],
)
def test_what_a_member_is(statement: str, traits: str) -> None:
    member = only(statement)
    found = {
        "nothing": member.carries_nothing,
        "attribute": member.is_attribute,
        "function": member.is_function,
        "skipped": member.may_be_skipped,
    }
    assert [name for name, one in found.items() if one] == traits.split()


def test_the_names_of_members() -> None:
    method, block = only("def f(self, a=b): c = d"), only("if a: b = c()")
    assert (method.binds, method.reads) == ({"f"}, {"b"})
    assert (block.binds, block.reads, block.touches) == ({"b"}, {"a", "c"}, {"a", "b", "c"})
