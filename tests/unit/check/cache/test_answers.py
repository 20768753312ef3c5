"""Answers that follow from texts hold as long as the texts are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modular_converter.check.cache import store
from modular_converter.check.cache.answers import KeptAnswers
from modular_converter.convert.source.library import Library
from modular_converter.settings.load import profile_settings


def answered(folder: Path, texts: dict[str, str], about: str = "") -> tuple[object, int]:
    """The length of a text, or of another if there is none; and how often it was counted."""
    library, made = Library(profile_settings(), texts), []

    def length(library: Library) -> int:
        made.append(1)
        return len(library.text("/a.py" if library.exists("/a.py") else "/b.py"))

    answers = KeptAnswers(str(folder), "key")
    found = answers.get("length", library, length, about)
    answers.store()
    return found, len(made)


def test_an_answer_holds_as_long_as_its_texts_and_subject(tmp_path: Path) -> None:
    assert answered(tmp_path, {"/b.py": "xy"}) == (2, 1)
    assert answered(tmp_path, {"/b.py": "xy", "/c.py": ""}) == (2, 0)
    assert answered(tmp_path, {"/b.py": "yx"}) == (2, 1)
    assert answered(tmp_path, {"/b.py": "yx", "/a.py": "x"}) == (1, 1)
    assert answered(tmp_path, {"/b.py": "yx"}) == (2, 1)
    assert answered(tmp_path, {"/b.py": "yx"}, about="other") == (2, 1)


@pytest.mark.parametrize("content", [[], {"length": 1}, {"length": ["", 5, [], {}]}, {"length": ["", 5, {}]}])
def test_an_entry_of_another_form_counts_as_absent(content: object, tmp_path: Path) -> None:
    answered(tmp_path, {"/b.py": "xy"})
    (entry,) = tmp_path.glob("*.json")
    store.write_entry(str(tmp_path), entry.stem, json.dumps(content).encode())
    assert answered(tmp_path, {"/b.py": "xy"}) == (2, 1)
