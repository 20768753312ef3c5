"""The edit that removes a statement: whole lines, and none where something else would go with them."""

from __future__ import annotations

import pytest

from modular_converter.convert.source.library import ignore_comments
from modular_converter.findings import Finding, Location, apply_edits
from modular_converter.rules import settings_tables
from modular_converter.rules._words import exports, remove_statement
from modular_converter.rules.input_files import CYCLE


def removed(text: str, mark: str) -> str | None:
    """The text without the statement in which a mark stands; None where there is no such edit."""
    line = 1 + text[: text.index(mark)].count("\n")
    column = 1 + len(text[: text.index(mark)].rpartition("\n")[2])
    fix = remove_statement(text, Finding(CYCLE, Location("m.py", line, column), "about `it`"), "Remove it")
    return None if fix is None else apply_edits(text, fix.edits)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\nIT\n", "a\n"),
        ("IT\na\n", "a\n"),
        ("a\nIT", "a\n"),
        ("a\nIT  # why\nb\n", "a\nb\n"),
        ("a\ncall(\n    IT,\n)\nb\n", "a\nb\n"),
        ("'é'\ncall('é', IT)\nb\n", "'é'\nb\n"),
        ("if a:\n    b\n    IT\n", "if a:\n    b\n"),
        ("if a:\n    b\nelse:\n    IT\n    c\n", "if a:\n    b\nelse:\n    c\n"),
        ("try:\n    b\nfinally:\n    c\n    IT\n    d\n", "try:\n    b\nfinally:\n    c\n    d\n"),
        ("IT\n", None),
        ("if a:\n    IT\n", None),
        ("if a:\n    b\nelse:\n    IT\n", None),
        ("a; IT\nb\n", None),
        ("IT; a\nb\n", None),
        ("if a: b; IT\nc\n", None),
        ("a\n# IT\nb\n", None),
    ],
)
def test_a_statement_is_removed_where_it_stands_alone(text: str, left: str | None) -> None:
    assert removed(text, "IT") == left


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("__all__ = ['A', 'B']", ["A", "B"]),
        ("__all__ = ('A',)", ["A"]),
        ("other = ['A']\n__all__ = ['B']", ["B"]),
        ("__all__ = ['A', name]", None),
        ("__all__ = names", None),
        ("__all__ += ['A']", None),
        ("", None),
    ],
)
def test_the_list_of_exported_names(text: str, names: list[str] | None) -> None:
    found = exports(text)
    assert (None if found is None else [one.value for one in found[0]]) == names


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a  # modular: ignore[MC1]\nb\n", "a\nb\n"),
        ("# modular: ignore[MC1]\nb\n", "\nb\n"),
        ("a  # modular: ignore[MC2, MC1]  # noqa\n", "a  # modular: ignore[MC2]  # noqa\n"),
        ("a  # modular: ignore[MC1,MC2]\n", "a  # modular: ignore[MC2]\n"),
        ("a  # noqa  # modular: ignore[MC1]\n", "a  # noqa\n"),
        ("a  # modular: ignore[MC1]  # noqa\n", None),
        ("a  # modular: ignore[MC1] because\n", None),
        ("a  # modular: ignore[MC1, MC1]\n", None),
        ("a  # modular: ignore[MC2]\n", None),
        ("a  # modular: ignore\n", None),
    ],
)
def test_an_entry_of_a_comment_is_removed(text: str, left: str | None) -> None:
    (comment,) = ignore_comments(text)
    place = Location("m.py", comment.line, comment.column, comment.line, comment.end_column)
    fix = settings_tables.fix_unused_ignore(text, settings_tables.unused_ignore(place, "MC1"))
    assert (None if fix is None else apply_edits(text, fix.edits)) == left
