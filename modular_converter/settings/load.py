"""Settings of a run: a built-in profile, overlaid with `[tool.modular-converter]` of the nearest pyproject.toml."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from modular_converter.diagnostics import Severity
from modular_converter.settings import toml_files
from modular_converter.settings.parent_folders import INSTALLED, upwards
from modular_converter.settings.toml_files import SettingsError, TomlFile
from modular_converter.settings.values import FORMATTERS, Settings


PROFILES = ("transformers",)
TABLE = "modular-converter"
PROFILE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")


def load_settings(start: str | os.PathLike[str]) -> Settings:
    """The settings for files at or below `start`.

    They come from the nearest pyproject.toml upwards that has a `[tool.modular-converter]` table; the search ends at
    a folder of installed packages. Raises `SettingsError` for a key that is unknown or a value of the wrong type.
    """
    project: TomlFile | None = None
    ruff = black = ""
    for folder in _upwards(os.path.abspath(start)):
        pyproject = toml_files.read_pyproject(folder)
        if pyproject is not None:
            if project is None and TABLE in pyproject.tools:
                project = pyproject
            black = black or (pyproject.path if "black" in pyproject.tools else "")
        ruff = ruff or toml_files.ruff_config_in(folder, pyproject)
        if project is not None and ruff:
            break
    return _settings(project, ruff, black)


@functools.lru_cache(maxsize=len(PROFILES))
def profile_settings(name: str = PROFILES[0]) -> Settings:
    """The settings of a built-in profile alone."""
    profile = toml_files.read_toml(os.path.join(PROFILE_FOLDER, f"{name}.toml"))
    with open(os.path.join(PROFILE_FOLDER, f"{name}.ruff.toml"), encoding="utf-8") as file:
        return Settings(profile=name, ruff_config=file.read(), **_read(profile, profile.table))


def _settings(project: TomlFile | None, ruff: str, black: str) -> Settings:
    """Lay the project's table over its profile, and settle which ruff configuration is in force."""
    table: Mapping[str, object] = {}
    folder = ""
    if project is not None:
        found = project.tools[TABLE]
        if not isinstance(found, dict):
            raise project.error(TABLE, "must be a table")
        table = found
    base = profile_settings(_profile_name(project, table))
    if project is not None:
        base = replace(base, pyproject=project.path, **_overrides(project, table, base))
        if "ruff-config" in table:
            ruff, folder = _named_ruff_config(project, table["ruff-config"]), os.path.dirname(project.path)
    return replace(base, black_config_path=black, **_ruff_options(ruff, folder or os.path.dirname(ruff)))


def _upwards(path: str) -> Iterator[str]:
    """The folder at `path` and those above it, up to a folder of installed packages."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return itertools.takewhile(lambda here: os.path.basename(here) not in INSTALLED, upwards(folder))


def _profile_name(project: TomlFile | None, table: Mapping[str, object]) -> str:
    if project is None or "profile" not in table:
        return PROFILES[0]
    return str(_checked(project, "profile", table["profile"], _one_of(PROFILES)))


def _overrides(project: TomlFile, table: Mapping[str, object], base: Settings) -> dict[str, Any]:
    """The project's values by field; `kinds` and `kept-names` add to the profile's, paths become absolute."""
    values = _read(project, {key: value for key, value in table.items() if key not in ("profile", "ruff-config")})
    if "kinds" in values:
        values["kinds"] = {**base.kinds, **values["kinds"]}
    if "kept_names" in values:
        values["kept_names"] = tuple(dict.fromkeys((*base.kept_names, *values["kept_names"])))
    for name in ("root", "output_dir"):
        if values.get(name):
            values[name] = _inside(project, name.replace("_", "-"), values[name])
    return values


def _inside(project: TomlFile, key: str, value: str) -> str:
    """The absolute path that a setting names. The tree that is read may be a stranger's: it stays within itself."""
    path = project.beside(value)
    real, folder = os.path.realpath(path), os.path.realpath(os.path.dirname(project.path))
    if real != folder and not real.startswith(os.path.join(folder, "")):
        option = "" if key == "ruff-config" else f"; give --{key} on the command line for that"
        raise project.error(key, f"leads out of {folder}{option}")
    return path


def _named_ruff_config(project: TomlFile, value: object) -> str:
    """The file that `ruff-config` names; "" for `"profile"`, the profile's own settings."""
    named = str(_checked(project, "ruff-config", value, _text))
    if named == "profile":
        return ""
    path = _inside(project, "ruff-config", named)
    if not os.path.isfile(path):
        raise project.error("ruff-config", f"names a file that does not exist: {path}")
    return path


def _ruff_options(path: str, folder: str) -> dict[str, Any]:
    """The fields that follow from the project's ruff configuration at `path`; none when it has none."""
    if not path:
        return {}
    file = toml_files.read_toml(path)
    return {
        "ruff_config": file.text,
        "ruff_config_path": path,
        "ruff_folder": folder,
        "ruff_source_roots": toml_files.ruff_source_roots(file, folder),
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {value!r}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"must be a list of strings, not {value!r}")
    return tuple(value)


def _text_table(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) and item for item in value.values()):
        raise ValueError(f"must be a table of strings, not {value!r}")
    return dict(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _at_least(least: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"must be a whole number of at least {least}, not {value!r}")
    return value


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in choices:
            listed = ", ".join(f'"{choice}"' for choice in choices)
            raise ValueError(f"must be one of {listed}, not {value!r}")
        return str(value)

    return check


def _severity(value: object) -> Severity:
    return Severity(_one_of(tuple(severity.value for severity in Severity))(value))


READERS: Mapping[str, Callable[[object], object]] = {
    "package": _text,
    "banner-root": _text,
    "auto-tables": _texts,
    "config-table": _text,
    "optional-kinds": _texts,
    "kept-names": _texts,
    "kinds": _text_table,
    "formatter": _one_of(FORMATTERS),
    "replaced-dependency": _severity,
    "max-file-bytes": functools.partial(_at_least, 1),
    "root": _text,
    "output-dir": _text,
    "workers": functools.partial(_at_least, 0),
    "strict": _flag,
}
"""The keys of a settings table, each with the function that checks its value."""


def _checked(file: TomlFile, key: str, value: object, reader: Callable[[object], object]) -> object:
    try:
        return reader(value)
    except ValueError as error:
        raise file.error(key, str(error)) from None


def _read(file: TomlFile, table: Mapping[str, object]) -> dict[str, Any]:
    """The values of a settings table by field name, each checked."""
    values = {}
    for key, value in table.items():
        if key not in READERS:
            raise file.unknown(key, (*READERS, "profile", "ruff-config"))
        values[key.replace("-", "_")] = _checked(file, key, value, READERS[key])
    return values


__all__ = ["PROFILES", "SettingsError", "load_settings", "profile_settings"]
