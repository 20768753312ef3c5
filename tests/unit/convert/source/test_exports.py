"""The names in `__all__`, and whether all of them could be read."""

from __future__ import annotations

import pytest

from modular_converter.model.module import exported_names, has_unread_names


@pytest.mark.parametrize(
    ("text", "names", "is_unread"),
    [
        ('__all__ = ["A", "B"]', "A B", False),
        ('__all__: list[str] = ("A",)', "A", False),
        ("__all__: list[str]", "", False),
        ('__all__ = ["A"] + ["B"]', "A B", False),
        ('__all__ = ["A"] + others', "A", True),
        ('__all__ = others + ["A"]', "A", True),
        ('__all__ = ["A", name, 1]', "A", True),
        ("__all__ = [name for name in names]", "", True),
        ('__all__ += ["A"]', "A", False),
        ("__all__ += names", "", True),
        ('__all__.append("A")', "A", False),
        ("__all__.append(name)", "", True),
        ('__all__.extend(["A"])', "A", False),
        ("__all__.extend(names)", "", True),
        ('__all__.remove("A")', "", True),
        ('__all__.insert(0, ["A"])', "", True),
        ('fill(["A"])', "", True),
        ('"a text"', "", False),
        ('__all__ = ["A"]\n__all__ += names\n__all__.append("B")', "A B", True),
    ],
)
def test_names_and_whether_there_are_more(text: str, names: str, is_unread: bool) -> None:
    assert exported_names(text) == tuple(names.split())
    assert has_unread_names(text) is is_unread
