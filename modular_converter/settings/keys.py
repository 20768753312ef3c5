"""The keys of a settings table, and the values that each accepts."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from modular_converter.findings import Severity
from modular_converter.rules import ignorable_prefix, rule_prefix
from modular_converter.settings.toml_files import TomlFile
from modular_converter.settings.values import (
    BANNER_NOTICE,
    FORMATTERS,
    LAYOUTS,
    NEIGHBOUR,
    POST_FORMATTERS,
    SIBLING_IMPORTS,
    PinnedFormatter,
)


PROFILES = ("transformers", "fla", "mlx_lm", "diffusers")
SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema.json")
EXACT_VERSION = re.compile(r"\d{1,6}(\.\d{1,6})*((a|b|rc|\.dev|\.post)\d{1,6})?")
"""A version that can stand behind `==` in a requirement. Nothing else is printed in a command to be copied."""
BOUND = re.compile(r"(==|!=|<=|>=|<|>|~=)\s*(\d{1,6}(?:\.\d{1,6})*)(\.\*)?")
"""A part of a requirement."""
MOST_CHARACTERS = 100
"""A longer requirement is left to the formatter."""

MOST = 10**12
"""The largest number in settings: no file has more bytes."""
_KIND = re.compile(r"[^\W\d]\w*(\{model\}\w*)?|\{model\}\w*")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {value!r}")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"must be a list of strings, not {value!r}")
    return tuple(_text(item) for item in value)


def _files_below(value: object) -> tuple[str, ...]:
    """Paths below the folder of models, with forward slashes."""
    paths = _texts(value)
    for path in paths:
        if (
            not path
            or path.startswith(("/", "~"))
            or ":" in path
            or not {"..", "\\"}.isdisjoint((*path.split("/"), *path))
        ):
            raise ValueError(f"must name files below the folder of models, not {path!r}")
    return paths


def _text_table(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) and item for item in value.values()):
        raise ValueError(f"must be a table of strings, not {value!r}")
    return {key: _text(item) for key, item in value.items()}


def _kind(value: object) -> str:
    """A kind of file, `modeling` or `tokenization_{model}_fast`: the start of a file's name, never another folder's."""
    kind = _text(value)
    if not _KIND.fullmatch(kind):
        raise ValueError(f"must be part of the name of a Python module, not {kind!r}")
    return kind


def _kinds(value: object) -> dict[str, str]:
    return {suffix: _kind(kind) for suffix, kind in _text_table(value).items()}


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _at_least(least: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"must be a whole number of at least {least}, not {value!r}")
    if value > MOST:
        raise ValueError(f"must be at most {MOST}")
    return value


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in choices:
            listed = ", ".join(f'"{choice}"' for choice in choices)
            raise ValueError(f"must be one of {listed}, not {value!r}")
        return str(value)

    return check


def _version(value: object) -> str:
    if not isinstance(value, str) or (value and not EXACT_VERSION.fullmatch(value)):
        raise ValueError(f'must be one version such as "0.14.10", or "" for any, not {value!r}')
    return value


def is_range(text: str) -> bool:
    """Whether a text is a range of versions without spaces: `>=0.14,<0.16`."""
    return len(text) < MOST_CHARACTERS and all(map(BOUND.fullmatch, text.split(",")))


def _required_version(value: object) -> str:
    text = value.replace(" ", "") if isinstance(value, str) else ""
    if not (is_range(text) or EXACT_VERSION.fullmatch(text)):
        raise ValueError(f'must be a version or a range such as "0.1.0" or ">=0.1,<0.2", not {value!r}')
    return text


def _tools(value: object) -> tuple[PinnedFormatter, ...]:
    """The tools that run after the formatter, each with its version or without: `isort`, `isort==6.1.0`."""
    found = []
    for entry in _texts(value):
        name, _, version = entry.partition("==")
        if name not in POST_FORMATTERS or (entry != name and not EXACT_VERSION.fullmatch(version)):
            listed = ", ".join(f'"{one}" or "{one}==VERSION"' for one in POST_FORMATTERS)
            raise ValueError(f"must list {listed}, not {entry!r}: other commands of a tree are never run")
        found.append(PinnedFormatter(name, version))
    return tuple(found)


def _comments(value: object) -> str:
    text = _text(value).strip("\n")
    if any(not line.startswith("#") or not line.isprintable() for line in text.split("\n") if line):
        raise ValueError(f"must hold comments alone: lines that begin with `#`, not {value!r}")
    return f"{text}\n" if text else ""


def _banner(value: object) -> str:
    text = _comments(value)
    if text and text.find(BANNER_NOTICE) not in range(1000):
        raise ValueError(f"must hold `{BANNER_NOTICE}`, by which generated files are recognised")
    return text


def _license_header(value: object) -> str:
    return NEIGHBOUR if value == NEIGHBOUR else _comments(value)


def _severity(value: object) -> Severity:
    return Severity(_one_of(tuple(severity.value for severity in Severity))(value))


def _rules(resolve: Callable[[str], str], value: object) -> tuple[str, ...]:
    """Codes and beginnings of codes; `resolve` is a function of `modular_converter.rules`."""
    try:
        return tuple(resolve(entry) for entry in _texts(value))
    except LookupError as error:
        raise ValueError(f"cannot be obeyed: {error}") from None


def _rules_by_pattern(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table of lists, not {value!r}")
    return {pattern: _rules(ignorable_prefix, entries) for pattern, entries in value.items()}


_PLAIN: Mapping[Callable[[object], object], str] = {
    _text: """
        profile package banner-root config-table config-suffix copy-comment availability-check model-base
        last-statement no-inherit-module ruff-config root output-dir""",
    _texts: """
        no-models kept-names optional-kinds optional-libraries added-decorators inherited-docstrings first-assignments
        overriding-assignments overriding-unless-none customary-names plan-names class-lists left-after-converting""",
    _text_table: "copied-kinds implied-bases",
}
READERS: Mapping[str, Callable[[object], object]] = {
    **{key: reader for reader, keys in _PLAIN.items() for key in keys.split()},
    "auto-tables": _files_below,
    "kinds": _kinds,
    "default-kind": _kind,
    "modular-kind": _kind,
    "layout": _one_of(LAYOUTS),
    "sibling-imports": _one_of(SIBLING_IMPORTS),
    "formatter": _one_of(FORMATTERS),
    "formatter-version": _version,
    "post-format": _tools,
    "accept-release": _version,
    "replaced-dependency": _severity,
    "max-file-bytes": functools.partial(_at_least, 1),
    "required-version": _required_version,
    "workers": functools.partial(_at_least, 0),
    "strict": _flag,
    "banner": _banner,
    "license-header": _license_header,
    "select": functools.partial(_rules, rule_prefix),
    "ignore": functools.partial(_rules, ignorable_prefix),
    "per-file-ignores": _rules_by_pattern,
}
"""The keys of a settings table, each with the function that checks its value."""
_OF_PROJECTS = """
    profile root output-dir workers strict select ignore per-file-ignores accept-release ruff-config required-version"""
PROJECT_KEYS = frozenset(_OF_PROJECTS.split())
"""The keys that say how a project works, and no conventions of a library: a profile has none of them."""
LISTS = frozenset(("auto-tables", "select", "ignore", "post-format", *_PLAIN[_texts].split()))
"""The keys whose values are lists of strings."""


def read_table(file: TomlFile, table: Mapping[str, object]) -> dict[str, Any]:
    """The values of a settings table by field name. Raises `SettingsError` for an unknown key or a wrong value."""
    values = {}
    for key, value in table.items():
        if key not in READERS:
            raise file.unknown(key, READERS)
        try:
            values[key.replace("-", "_")] = READERS[key](value)
        except ValueError as error:
            raise file.error(key, str(error)) from None
    return values


def tool_schema(tool_name: str = "modular-converter") -> dict[str, Any]:
    """The JSON schema of the table, as `validate-pyproject` asks its plugins for it; SchemaStore has it for editors."""
    with open(SCHEMA, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found
