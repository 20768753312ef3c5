"""TOML files of a project, read only when there are any, the errors that point into them, the options of isort, and the keys of
the project's table with the values that each accepts.
"""

from __future__ import annotations

import builtins
import configparser
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from modular_converter.findings import ConversionError, Location, Severity, locate_word
from modular_converter.rules import ignorable_prefix, rule_prefix, settings_tables
from modular_converter.settings.disk import is_below, read_regular, repository_above
from modular_converter.settings.values import (
    BANNER_NOTICE,
    FORMATTERS,
    LAYOUTS,
    NEIGHBOUR,
    POST_FORMATTERS,
    SIBLING_IMPORTS,
    PinnedFormatter,
)


TOOL_TABLES = (b"modular-converter", b"modular_converter", b"ruff", b"black", b"isort")
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

    def has_table(self, name: str) -> bool:
        """Whether a pyproject.toml has this table of a tool. Raises `SettingsError` for one with `_` in place of `-`."""
        misspelt = name.replace("-", "_")
        if misspelt in self.tools and name not in self.tools:
            place = locate_word(self.path, f"tool.{misspelt}", self.text)
            raise SettingsError(settings_tables.misspelt_table(place, misspelt).with_source(self.text))
        return name in self.tools

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


MOST = 1000
"""The largest number, and the longest text or list, in an option."""
_SECTIONS = {
    ".isort.cfg": ("settings", "isort"),
    "setup.cfg": ("isort", "tool:isort"),
    "tox.ini": ("isort", "tool:isort"),
}
"""Files with options of isort, with the names of their sections. `.isort.cfg` counts before `pyproject.toml`, which counts
before the others, as for isort itself."""
OTHER_FILES = tuple(_SECTIONS)
_OPTIONS: Mapping[type | None, str] = {
    bool: """
        balanced_wrapping case_sensitive combine_as_imports combine_star combine_straight_imports dedup_headings
        ensure_newline_before_comments force_alphabetical_sort force_alphabetical_sort_within_sections
        force_single_line force_sort_within_sections from_first group_by_package honor_case_in_force_sorted_sections
        include_trailing_comma length_sort length_sort_straight lexicographical no_inline_sort no_sections
        only_sections order_by_type reverse_relative reverse_sort sort_relative_in_force_sorted_sections
        split_on_trailing_comma star_first use_parentheses""",
    int: """
        force_grid_wrap line_length lines_after_imports lines_before_imports lines_between_sections
        lines_between_types multi_line_output wrap_length""",
    str: "default_section profile py_version",
    list: """
        classes constants extra_standard_library force_to_top length_sort_sections no_lines_before sections
        single_line_exclusions src_paths variables""",
    None: """
        atomic color_output extend_skip extend_skip_glob filter_files follow_links quiet skip skip_gitignore skip_glob
        verbose""",
}
"""Type -> the options of this type; None -> options about the files that isort visits by itself, and what it prints."""
_TYPES = {name: kind for kind, names in _OPTIONS.items() for name in names.split()}
_UNKNOWN = object
_NAME = re.compile(r"[\w.]{0,200}([*?][\w.]{0,200}){0,2}")
"""The name of a module or section, with at most two wildcards: more take too long to compare."""
_PATH = re.compile(r"[\w.-][\w./-]{0,1000}")


def isort_options(start: str, folders: Iterable[str]) -> tuple[str, Mapping[str, object]]:
    """The folder of the project's options of isort, and these options. They are those of the nearest file, as for isort
    itself; a folder with `.git` ends the search.

    Args:
        start: the folder that they are for, where none is found.
        folders: `start` and the folders above it.

    Raises `SettingsError` for an option that is not known.
    """
    for folder in folders:
        pyproject = read_pyproject(folder)
        own = pyproject.tools.get("isort") if pyproject else None
        files: dict[str, tuple[TomlFile, Mapping[str, object]]] = {}
        if pyproject and isinstance(own, dict) and own:
            files["pyproject.toml"] = pyproject, own
        if other := other_options(folder):
            files[os.path.basename(other[0].path)] = other
        for file, options in (files[name] for name in (".isort.cfg", "pyproject.toml", *OTHER_FILES) if name in files):
            read = {name: _option(file, name, value) for name, value in options.items()}
            return folder, {name: value for name, value in read.items() if _type_of(name)}
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder, {}
    return start, {}


def other_options(folder: str) -> tuple[TomlFile, Mapping[str, object]] | None:
    """The first file of a folder, other than `pyproject.toml`, that has options of isort, and these; None for none.

    Raises `SettingsError` for a file that cannot be read.
    """
    for name, sections in _SECTIONS.items():
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            continue
        text = read_text(path)
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        try:
            parser.read_string(text, path)
        except configparser.Error as error:
            raise SettingsError(settings_tables.unreadable(Location(path), str(error).partition("\n")[0])) from None
        rows = {key: value for one in sections if parser.has_section(one) for key, value in parser.items(one)}
        if rows:
            return TomlFile(path, text, {}), {key: _value(key, value) for key, value in rows.items()}
    return None


def _value(name: str, text: str) -> object:
    """The value of an option that an INI file gives as a text; the text itself where it is none of its type."""
    match _type_of(name):
        case builtins.bool:
            return configparser.ConfigParser.BOOLEAN_STATES.get(text.lower(), text)
        case builtins.int:
            return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text
        case builtins.list:
            return [entry.strip() for entry in re.split("[,\n]", text) if entry.strip()]
    return text


def _option(file: TomlFile, name: str, value: object) -> object:
    """The value of an option; a list may be written as one string with commas. Raises `SettingsError` for an option that
    is not known, or not of its type.
    """
    kind = _type_of(name)
    if kind is list and isinstance(value, str):
        value = [entry.strip() for entry in value.split(",") if entry.strip()]
    if reason := _fault(kind, name, value):
        line = file.text[: max(0, file.text.find("isort]"))].count("\n") + 1
        place = locate_word(file.path, name, file.text, line)
        raise SettingsError(settings_tables.bad_setting(place, f"isort.{name}", reason).with_source(file.text))
    return value


def _type_of(name: str) -> type | None:
    if name.startswith("known_"):
        return list
    return str if name.startswith(("import_heading_", "import_footer_")) else _TYPES.get(name, _UNKNOWN)


def _fault(kind: type | None, name: str, value: object) -> str:
    """What is wrong with an option; "" for nothing."""
    if kind is _UNKNOWN:
        return "is not one of the options that `post-format` knows: it decides no layout, or runs other code"
    if kind is bool and not isinstance(value, bool):
        return f"must be true or false, not {value!r}"
    if kind is int and not (isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= MOST):
        return f"must be a whole number of at most {MOST}, not {value!r}"
    if kind is str and not (isinstance(value, str) and value.isprintable() and len(value) <= MOST):
        return f"must be a string on one line, not {value!r}"
    if kind is list:
        if not isinstance(value, list) or len(value) > MOST:
            return f"must be a list of strings, not {value!r}"
        wrong = next((one for one in value if not isinstance(one, str) or not _is_name(name, one)), None)
        return "" if wrong is None else f"must hold plain names of modules, sections or folders, not {wrong!r}"
    return ""


def _is_name(option: str, entry: str) -> bool:
    """Whether an entry of a list is a plain name, or for `src_paths` a path within the project."""
    if option == "src_paths":
        return _PATH.fullmatch(entry) is not None and ".." not in entry.split("/")
    return _NAME.fullmatch(entry) is not None


PROFILES = ("transformers", "fla", "mlx_lm", "diffusers")
SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema.json")
EXACT_VERSION = re.compile(r"\d{1,6}(\.\d{1,6})*((a|b|rc|\.dev|\.post)\d{1,6})?")
"""A version that can stand behind `==` in a requirement. Nothing else is printed in a command to be copied."""
BOUND = re.compile(r"(==|!=|<=|>=|<|>|~=)\s*(\d{1,6}(?:\.\d{1,6})*)(\.\*)?")
"""A part of a requirement."""
MOST_CHARACTERS = 100
"""A longer requirement is left to the formatter."""

MOST_NUMBER = 10**12
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


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _at_least(least: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"must be a whole number of at least {least}, not {value!r}")
    if value > MOST_NUMBER:
        raise ValueError(f"must be at most {MOST_NUMBER}")
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
    "kinds": lambda value: {suffix: _kind(kind) for suffix, kind in _text_table(value).items()},
    "default-kind": _kind,
    "modular-kind": _kind,
    "layout": _one_of(LAYOUTS),
    "sibling-imports": _one_of(SIBLING_IMPORTS),
    "formatter": _one_of(FORMATTERS),
    "formatter-version": _version,
    "post-format": _tools,
    "accept-release": _version,
    "replaced-dependency": lambda value: Severity(_one_of(tuple(one.value for one in Severity))(value)),
    "max-file-bytes": functools.partial(_at_least, 1),
    "required-version": _required_version,
    "workers": functools.partial(_at_least, 0),
    "strict": _flag,
    "banner": _banner,
    "license-header": lambda value: NEIGHBOUR if value == NEIGHBOUR else _comments(value),
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
