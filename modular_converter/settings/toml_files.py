"""TOML files of a project, read only when there are any, and the errors that point into them."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from modular_converter.findings import ConversionError, Location
from modular_converter.rules import settings_tables
from modular_converter.settings.parent_folders import is_below, repository_above
from modular_converter.settings.regular_file import read_regular


TOOL_TABLES = (b"modular-converter", b"ruff", b"black", b"isort")
"""A pyproject.toml without any of these words has no table that counts here, and is not parsed."""
RUFF_NAMES = (".ruff.toml", "ruff.toml")
"""Before pyproject.toml in ruff's own order of precedence."""
MOST_BYTES = 1_000_000
"""Settings larger than this are refused. People write kilobytes."""
MOST_STEPS = 40_000_000
"""The limit for the work that dots in keys cause: the parser takes the square of the dots of a line. This many steps
take a second.
"""
EXTENDS_AT_MOST = 8
"""Ruff configurations in a chain of `extend`. A longer chain is refused."""


class SettingsError(ConversionError):
    """Raised for settings that are wrong or cannot be followed."""


class TomlFile(NamedTuple):
    """A parsed TOML file with its text, so that errors can name a line."""

    path: str
    text: str
    table: Mapping[str, object]

    @property
    def tools(self) -> Mapping[str, object]:
        """The `[tool]` table of a pyproject.toml."""
        tools = self.table.get("tool", {})
        return tools if isinstance(tools, dict) else {}

    @property
    def ruff(self) -> Mapping[str, object]:
        """Ruff's options: the whole of a ruff.toml, the `[tool.ruff]` of a pyproject.toml."""
        options = self.tools.get("ruff", {}) if os.path.basename(self.path) == "pyproject.toml" else self.table
        return options if isinstance(options, dict) else {}

    @property
    def decides_format(self) -> str:
        """The part of its text that ruff reads. The rest of a pyproject.toml may change without effect."""
        if os.path.basename(self.path) != "pyproject.toml":
            return self.text
        project = self.table.get("project")
        return repr((self.ruff, project.get("requires-python") if isinstance(project, dict) else None))

    def beside(self, path: str) -> str:
        """The absolute path of a path that is relative to this file's folder."""
        return os.path.normpath(os.path.join(os.path.dirname(self.path), os.path.expanduser(path)))

    def error(self, key: str, reason: str) -> SettingsError:
        """The error to raise for a value that does not fit."""
        return SettingsError(settings_tables.bad_setting(self.place_of(key), key, reason).with_source(self.text))

    def unknown(self, key: str, candidates: Iterable[str]) -> SettingsError:
        """The error to raise for a key that is none of `candidates`."""
        return SettingsError(settings_tables.unknown(self.place_of(key), key, candidates).with_source(self.text))

    def place_of(self, key: str) -> Location:
        """Where a key of our table stands: after the table's header, as `key =` or in the header itself."""
        header = re.search(r"(?m)^\s*\[\s*tool\s*\.\s*[\"']?modular-converter", self.text)
        start = header.start() if header else 0
        entry = re.compile(rf"(?m)^[ \t]*(?:\[[^\]\n]*?)?[\"']?({re.escape(key)})[\"']?[ \t]*[=.\]]")
        match = entry.search(self.text, start)
        if match is None:
            return Location(self.path)
        line = self.text.count("\n", 0, match.start(1)) + 1
        column = match.start(1) - self.text.rfind("\n", 0, match.start(1))
        return Location(self.path, line, column, line, column + len(key))


def read_toml(path: str) -> TomlFile:
    """Read and parse a TOML file. Raises `SettingsError` when this fails."""
    return _parse(path, _read(path))


def read_pyproject(folder: str) -> TomlFile | None:
    """The pyproject.toml of a folder, or None when there is none or it does not mention a tool of ours."""
    path = os.path.join(folder, "pyproject.toml")
    if not os.path.isfile(path):
        return None
    content = _read(path)
    return _parse(path, content) if any(word in content for word in TOOL_TABLES) else None


def read_text(path: str) -> str:
    """The text of a settings file of another form. Raises `SettingsError` when it cannot be read."""
    return _read(path).decode("utf-8", "replace")


def _read(path: str) -> bytes:
    """The bytes of a settings file.

    Raises `SettingsError` for one that is unreadable, too large or not regular, and for a link to a file outside of the
    repository, unless that has the same name, as in the trees of build tools.
    """
    is_renamed = os.path.islink(path) and os.path.basename(os.path.realpath(path)) != os.path.basename(path)
    if is_renamed and not is_below(os.path.realpath(path), os.path.realpath(_top(path))):
        raise SettingsError(settings_tables.unreadable(Location(path), f"it is a link out of {_top(path)}"))
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        raise SettingsError(settings_tables.unreadable(Location(path), error.strerror or str(error))) from None


def _top(path: str) -> str:
    """The folder out of which the settings of a file may not lead."""
    folder = os.path.dirname(path)
    return repository_above(folder) or folder


def ruff_config_in(folder: str, pyproject: TomlFile | None) -> str:
    """The file that ruff itself would take its options for this folder from, or ""."""
    for name in RUFF_NAMES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    return pyproject.path if pyproject is not None and "ruff" in pyproject.tools else ""


class RuffFiles(NamedTuple):
    """A ruff configuration and the configurations that it extends, the nearest first."""

    files: tuple[TomlFile, ...]
    is_complete: bool
    """Whether the list is complete: false if a file is missing, which ruff reports."""


def follow_extend(file: TomlFile) -> RuffFiles:
    """Read the configurations that a ruff configuration extends.

    Raises `SettingsError` for a file that is no TOML or no regular file, and for a path with a `$` or out of the
    repository: ruff would print environment variables, or lines of a private file, in its messages.
    """
    files = [file]
    top = _top(file.path)
    while (extended := files[-1].ruff.get("extend")) is not None:
        if not isinstance(extended, str):
            return RuffFiles(tuple(files), False)
        if "$" in extended:
            raise files[-1].error("extend", "of ruff must be a path without environment variables")
        if "\0" in extended:
            raise files[-1].error("extend", "of ruff holds a NUL character")
        path = files[-1].beside(extended)
        if not is_below(os.path.realpath(path), os.path.realpath(top)):
            raise files[-1].error("extend", f"of ruff leads out of {top}")
        if not os.path.lexists(path):
            return RuffFiles(tuple(files), False)
        if len(files) > EXTENDS_AT_MOST:
            raise files[-1].error("extend", f"of ruff is one of more than {EXTENDS_AT_MOST} in a chain")
        files.append(read_toml(path))
    return RuffFiles(tuple(files), True)


def ruff_source_roots(files: Iterable[TomlFile], folder: str) -> tuple[str, ...]:
    """The folders of the first `src` in these ruff configurations; `folder` and `src` in it where none has one.

    Raises `SettingsError` for a name that no folder can have.
    """
    found = ((file, source) for file in files if isinstance(source := file.ruff.get("src"), list))
    file, sources = next(found, (None, [folder, "src"]))
    if file is not None and any("\0" in str(entry) for entry in sources):
        raise file.error("src", "of ruff holds a NUL character")
    return tuple(os.path.normpath(os.path.join(folder, str(entry))) for entry in sources)


@functools.lru_cache(maxsize=16)  # each folder of models asks for the files above it
def _parse(path: str, content: bytes) -> TomlFile:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = content.decode("utf-8").replace("\r\n", "\n")
        if sum(line.count(".") ** 2 for line in text.split("\n")) > MOST_STEPS:
            raise SettingsError(settings_tables.unreadable(Location(path), "its keys have too many parts"))
        return TomlFile(path, text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        raise SettingsError(settings_tables.unreadable(Location(path), f"not UTF-8: {error.reason}")) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+), column (\d+)", str(error))
        location = Location(path, int(place[1]), int(place[2])) if place else Location(path)
        finding = settings_tables.unreadable(location, str(error))
        if os.path.realpath(path).endswith(".toml"):  # a link, or an `extend`, may lead to a file that is none of ours
            finding = finding.with_source(text)
        raise SettingsError(finding) from None
    except (ValueError, RecursionError, MemoryError) as error:  # an integer of thousands of digits, deep nesting
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SettingsError(settings_tables.unreadable(Location(path), reason)) from None
