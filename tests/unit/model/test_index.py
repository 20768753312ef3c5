"""What a top-level statement is: its role, its name, its lines, and the changes that are joined to it."""

from __future__ import annotations

import sys

import pytest

from modular_converter.model.index import imports_within, index_module
from modular_converter.model.module import ImportedName, Role, Statement, exported_names


def statements(text: str) -> tuple[Statement, ...]:
    return index_module(text, "m.py").statements


@pytest.mark.parametrize(
    ("text", "role", "name", "is_store"),
    [
        ("A = 1", Role.ASSIGNMENT, "A", False),
        ("A: int = 1", Role.ASSIGNMENT, "A", False),
        ("A, B = 1, 2", Role.ASSIGNMENT, "A", False),
        ("A = B = 1", Role.ASSIGNMENT, "A", False),
        ("A += 1", Role.ASSIGNMENT, "A", True),
        ("A.b[0] = 1", Role.ASSIGNMENT, "A", True),
        ("A['k'].b = 1", Role.ASSIGNMENT, "A", True),
        ("f().a = 1", Role.OTHER, "", False),
        ("A.b.update(c)", Role.OTHER, "A", False),
        ("A()", Role.OTHER, "", False),
        ("A.b", Role.OTHER, "", False),
        ("del A.b", Role.OTHER, "A", False),
        ("del A", Role.OTHER, "", False),
        ("del A.b, A.c", Role.OTHER, "", False),
        ("async def f(): pass", Role.FUNCTION, "f", False),
        ("class C(a.B, metaclass=M): pass", Role.CLASS, "C", False),
        ("import a.b", Role.IMPORT, "", False),
        ("if a:\n    b = 1", Role.ASSIGNMENT, "b", False),
        ("if a:\n    class B: pass", Role.ASSIGNMENT, "B", False),
        ("@a.b\ndef _(c): pass", Role.OTHER, "a", False),
        ("for a in b:\n    c = a", Role.ASSIGNMENT, "c", False),
        ("for a in b:\n    print(a)", Role.OTHER, "", False),
        ("if a:\n    pass\nelse:\n    import b", Role.PROTECTED_IMPORT, "", False),
        ("with a:\n    import b", Role.ASSIGNMENT, "b", False),
    ],
)
def test_roles(text: str, role: Role, name: str, is_store: bool) -> None:
    (found,) = statements(text)
    assert (found.role, found.name, found.is_store, found.text) == (role, name, is_store, text)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type` statements are of Python 3.12")
def test_a_type_statement_is_an_assignment() -> None:
    assert [(one.role, one.name) for one in statements("type A = int")] == [(Role.ASSIGNMENT, "A")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("T = {}\nT['a'] = 1\n\nT.b.c()\ndel T.d", [("T", Role.ASSIGNMENT)]),
        ("def f(): pass\nf = wrap(f)\nf.a = 1", [("f", Role.FUNCTION)]),
        ("A = 1\nA = 2", [("A", Role.ASSIGNMENT), ("A", Role.ASSIGNMENT)]),
        ("A = 1\nA: int", [("A", Role.ASSIGNMENT), ("A", Role.ASSIGNMENT)]),
        ("A = 1\nA = 2\nA += 1", [("A", Role.ASSIGNMENT), ("A", Role.ASSIGNMENT)]),
        ("A = wrap(A)\nA = 1", [("A", Role.ASSIGNMENT), ("A", Role.ASSIGNMENT)]),
        ("import a\na.b = 1\na.c = 2", [("", Role.IMPORT), ("a", Role.ASSIGNMENT)]),
        ("import a\na.b()", [("", Role.IMPORT), ("a", Role.OTHER)]),
        ("class C: pass\nC.a = 1\nC = wrap(C)", [("C", Role.CLASS)]),
        ("T = []\nfor i in (1, 2):\n    T.append(i)", [("T", Role.ASSIGNMENT)]),
        ("for i in (1, 2):\n    T.append(i)", [("", Role.OTHER)]),
        ("class C: pass\nif a:\n    C = b", [("C", Role.CLASS)]),
        (
            "class C: pass\nclass D: pass\nif a:\n    C = D = b",
            [("C", Role.CLASS), ("D", Role.CLASS), ("", Role.OTHER)],
        ),
        ("class C: pass\nC = 1", [("C", Role.CLASS), ("C", Role.ASSIGNMENT)]),
        ("print(1)\nprint(2)", [("", Role.OTHER), ("", Role.OTHER)]),
    ],
)
def test_what_is_joined_to_the_definition_that_it_changes(text: str, found: list[tuple[str, Role]]) -> None:
    assert [(one.name, one.role) for one in statements(text)] == found


def test_where_joined_statements_begin() -> None:
    text = "X = 1\n\nT = {\n}\nU = 0\n# Above.\n\nT[1] = 2\nT[\n    2] = 3\n"
    table = statements(text)[1]
    assert table.text == "T = {\n}\n# Above.\n\nT[1] = 2\nT[\n    2] = 3"
    lines, source = table.text.split("\n"), text.split("\n")
    assert table.joined == ((2, 6), (5, 9))
    assert [lines[own] for own, _ in table.joined] == [source[line - 1] for _, line in table.joined]


def test_a_definition_after_several_changes_is_its_last() -> None:
    """The changes belong to the definition above them."""
    first, second = statements("A = []\nA.append(1)\nA = []\nA.append(2)\n")
    assert (first.text, second.text) == ("A = []\nA.append(1)", "A = []\nA.append(2)")


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a = 1; b = 2; c = 3", ["a = 1", "b = 2", "c = 3"]),
        ("a = 'é'; b = 'ü'  # both", ["a = 'é'", "b = 'ü'  # both"]),
        ("a = 1;  # one", ["a = 1;  # one"]),
        ("a = 1;", ["a = 1;"]),
        ("a = [\n    1]; b = [\n    2]", ["a = [\n    1]", "b = [\n    2]"]),
        ("@(\n    wrap\n)\ndef f(): pass", ["@(\n    wrap\n)\ndef f(): pass"]),
        ("def f():\n    pass\n    # in\n\n    # in, too\n# out\nb = 1", None),
        ("def f():\n    pass\n\n    # the end", ["def f():\n    pass\n\n    # the end"]),
    ],
)
def test_the_lines_of_a_statement(text: str, texts: list[str] | None) -> None:
    expected = texts or ["def f():\n    pass\n    # in\n\n    # in, too", "b = 1"]
    found = statements(text)
    assert [one.text for one in found] == expected
    assert found[-1].lead == ("" if texts else "# out\n")


def test_the_lines_above_a_statement() -> None:
    module = index_module("# Licence.\n\n'''Doc.'''\n# of a\na = 1; b = 2\n\n# of c\n\nc = 3\n", "m.py")
    assert module.header == "# Licence.\n\n"
    assert [(one.name, one.lead, one.line) for one in module.statements] == [
        ("a", "# of a\n", 5),
        ("b", "", 5),
        ("c", "\n# of c\n\n", 9),
    ]
    assert index_module("# nothing\n", "m.py").header == "# nothing\n\n"


def test_the_names_of_a_module() -> None:
    module = index_module("import a.b, c.d as e\nfrom .f import g, h as i\nX = 1\ndef X(): ...\nprint()\n", "m.py")
    assert list(module.definitions) == ["X"] and module.definitions["X"].role is Role.FUNCTION
    assert module.imported == {
        "a": ImportedName("a.b", ""),
        "e": ImportedName("c.d", "", "e"),
        "g": ImportedName(".f", "g"),
        "i": ImportedName(".f", "h", "i"),
    }
    assert [name.key for name in module.imported.values()] == ["a.b", "e", "g", "i"]
    assert [name.is_relative for name in module.imported.values()] == [False, False, True, True]
    assert module.names == {"X", "a", "e", "g", "i"}


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("def f():\n    import llama_cpp\n    from x import y", ["llama_cpp", "y"]),
        ("def f():\n    from LLAMA import y", ["y"]),
        ("def f():\n    from .llama import y", []),
        ("def f():\n    import x\n    return llama", []),
        ("def f():\n    'import of llama'", []),
    ],
)
def test_imports_in_a_body(text: str, bound: list[str]) -> None:
    assert [name.bound for name in imports_within(text, "llama")] == bound


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('__all__ = ["A"]\n__all__ += ["B"]\n__all__.extend(["C"] + ["D"])\n__all__.append("E")', "A B C D E"),
        ('__all__: list = ["A"]\n__all__.remove("A")\n__all__.insert(0, "B")', "A"),
        ("__all__: list", ""),
        ('__all__ = ["A"] * 2', ""),
        ('__all__ = [*["A"], "B"]', "B"),
    ],
)
def test_exports(text: str, names: str) -> None:
    assert exported_names(statements(text)[0].text) == tuple(names.split())
