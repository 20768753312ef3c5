"""The JSON schema of the settings refuses nothing that the settings accept, and lets pass no value of a wrong form."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.settings.toml_files import READERS, tool_schema


jsonschema = pytest.importorskip("jsonschema")
VALUES = [
    *("", "x", "0.1.0", "ruff", "neighbour", "error", "# a comment", "transformers", "files"),
    *(0, 1, 10**13, True, 1.5, None),
    *([], ["x"], ["MC3"], ["isort"], [1], {}, {"X": "x"}, {"X": ""}, {"X": ["MC3"]}, {"X": [1]}, {"X": 1}),
]
"""Values of every form; each setting accepts some of them."""


def is_read(key: str, value: object) -> bool:
    try:
        READERS[key](value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("key", sorted(READERS))
def test_the_schema_is_the_form_of_what_the_settings_accept(key: str) -> None:
    judge = jsonschema.Draft7Validator(tool_schema())
    read = [value for value in VALUES if is_read(key, value)]
    assert read or key == "banner"
    assert all(judge.is_valid({key: value}) for value in read)
    forms = {type(value) for value in read} or {str}
    assert all(type(value) in forms for value in VALUES if judge.is_valid({key: value}))


def test_unknown_keys_are_refused() -> None:
    assert not jsonschema.Draft7Validator(tool_schema()).is_valid({"rooot": "."})


def test_the_plugin_is_declared() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition('[project.entry-points."validate_pyproject.tool_schema"]\n')[2]
    assert table.startswith(f'modular-converter = "{tool_schema.__module__}:{tool_schema.__name__}"\n')
