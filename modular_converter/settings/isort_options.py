"""The options of isort that a project gives in `[tool.isort]` or a file of isort's own, for a run of isort after the formatter.

Only options that lay out imports are known: others could make isort load a plugin, start git or read files elsewhere,
and the project may be a stranger's.
"""

from __future__ import annotations

import builtins
import configparser
import os
import re
from collections.abc import Iterable, Mapping

from modular_converter.findings import Location, locate_word
from modular_converter.rules import settings_tables
from modular_converter.settings import toml_files
from modular_converter.settings.toml_files import SettingsError, TomlFile


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
        pyproject = toml_files.read_pyproject(folder)
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
        text = toml_files.read_text(path)
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
