"""Settings of a run: a profile, overlaid with `[tool.modular-converter]` of the nearest pyproject.toml, where
folders may have formatter settings of their own; the version of the formatter that a library is formatted with, with the
place where a file says so; the release of the package that a folder lies in, with the conventions of its older releases.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from modular_converter.findings import Location, locate_word
from modular_converter.rules import settings_tables
from modular_converter.settings import profiles, toml_files
from modular_converter.settings.disk import INSTALLED, read_head, repository_above, upwards
from modular_converter.settings.toml_files import (
    BOUND,
    EXACT_VERSION,
    PROFILES,
    PROJECT_KEYS,
    READERS,
    RUFF_NAMES,
    RuffFiles,
    SettingsError,
    TomlFile,
    is_range,
    isort_options,
    read_table,
)
from modular_converter.settings.values import (
    PLAIN_BANNER,
    PackageRelease,
    PinnedFormatter,
    Settings,
    modular_name,
    would_be_modular,
)
from modular_converter.version import __version__


KEY = "formatter-version"
REQUIRED = "required-version"
"""The option of ruff and of black that names the version for all their runs."""
_COMPARE: Mapping[str, Callable[[list[int], list[int]], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def pinned_formatter(
    base: Settings,
    project: TomlFile | None,
    values: Mapping[str, Any],
    ruff: Iterable[TomlFile],
    black: TomlFile | None,
) -> PinnedFormatter | None:
    """The version that the project names, else that of the profile; None where any version will do.

    Args:
        project: the project's file with our table.
        values: that table, by field.
        ruff: the ruff configurations in force, the nearest first; none for the profile's own.
        black: the file with the project's `[tool.black]`.
    """
    formatter = values.get("formatter", base.formatter)
    if project is not None and "formatter_version" in values:
        return PinnedFormatter(formatter, values["formatter_version"], project.place_of(KEY))
    files = [(file, file.ruff) for file in ruff] if formatter == "ruff" else []
    if formatter == "black" and black is not None:
        options = black.tools.get("black")
        files = [(black, options if isinstance(options, dict) else {})]
    for file, options in files:
        if REQUIRED in options:
            version = _requirement(options[REQUIRED], formatter)
            return PinnedFormatter(formatter, version, locate_word(file.path, REQUIRED, file.text))
    return base.pinned_formatter


def allows(requirement: str, version: str) -> bool:
    """Whether a version fits a requirement such as `0.14.10` or `>=0.14,<0.16`. Pre-releases fit no range."""
    if EXACT_VERSION.fullmatch(requirement):
        return version == requirement or (
            requirement.replace(".", "").isdigit() and allows(f"=={requirement}", version)
        )
    numbers = version.split(".")
    return all(map(str.isdecimal, numbers)) and all(
        _is_within([int(number) for number in numbers], *bound.groups(default=""))
        for bound in BOUND.finditer(requirement)
    )


def _is_within(version: list[int], comparison: str, bound: str, wildcard: str) -> bool:
    """Whether a version fits one part of a requirement, as Python packages understand it (PEP 440)."""
    limit = [int(number) for number in bound.split(".")]
    if comparison == "~=":
        return _is_within(version, ">=", bound, "") and version[: len(limit) - 1] == limit[:-1]
    if wildcard:
        version = version[: len(limit)]
    length = max(len(version), len(limit))
    return _COMPARE[comparison](*(one + [0] * (length - len(one)) for one in (version, limit)))


def _requirement(required: object, formatter: str) -> str:
    """`0.14.10` for itself and for `==0.14.10`, else a range without spaces; "" for others, which the formatter judges.

    Black takes a number alone for a major version.
    """
    text = required.replace(" ", "") if isinstance(required, str) else ""
    if EXACT_VERSION.fullmatch(text.removeprefix("==")):
        version = text.removeprefix("==")
        return f"=={version}.*" if formatter == "black" and version.isdigit() else version
    return text if is_range(text) else ""


Release = tuple[int, ...]
MOST_BYTES = 1_000_000
NAME = "__version__"
_VERSION = re.compile(
    rf"""^{NAME}\s*(?::\s*str\s*)?=\s*(["\'])([0-9]{{1,9}}(?:\.[0-9]{{1,9}})*(?:[-_.+a-z][-_.+a-z0-9]{{0,50}})?)\1[ \t\r]*(?:[;#].*)?$""",
    re.MULTILINE | re.IGNORECASE,
)


def parse_release(version: str) -> Release:
    """`5.18.0.dev0` -> `(5, 18, 0)`: the leading numbers, which is all that conventions depend on."""
    match = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def release_of(folder: str, package: str) -> PackageRelease | None:
    """The release of the named package that a folder lies in; None outside the package, and where it says none."""
    for above in (*upwards(folder), *upwards(os.path.realpath(folder))):  # a link may have another name
        if os.path.basename(above) == package:
            path = os.path.join(above, "__init__.py")
            try:
                head = read_head(path, MOST_BYTES)
            except OSError:
                continue
            text = head.decode("utf-8", "replace")
            found = [match[2] for match in _VERSION.finditer(text)]
            if found or re.search(rf"\b{NAME}\b", text):  # imported, joined of parts, set in a block: unreadable
                return PackageRelease(found[-1] if found else "", locate_word(path, NAME, text))
    return None


def is_unchecked(settings: Settings) -> bool:
    """Whether the models lie in a release that is newer than the profile was checked with, or whose version cannot be
    read, and that the project has not accepted.

    A development version counts as the release that it leads to, so the main branch is newer than the last release.
    """
    found = settings.package_release
    if found is None or not settings.checked_release:
        return False
    if not found.version:
        return not settings.accept_release
    release = parse_release(found.version)
    known = map(parse_release, (settings.checked_release, settings.accept_release))
    return all(release[: len(one)] > one or not one for one in known)  # 5.25.1 is not newer than 5.25


def conventions(latest: Mapping[str, Any], older: Iterable[Mapping[str, Any]], release: Release) -> dict[str, Any]:
    """The table of a profile for a release; `()` stands for the latest.

    Args:
        latest: the profile's own table.
        older: tables with a key `before`, the newest first, each of which holds for the releases before that one.
    """
    table = dict(latest)
    for one in older:
        if release and release < parse_release(one["before"]):
            changes = {key: value for key, value in one.items() if key != "before"}
            kinds = {**table["kinds"], **changes.get("kinds", {})}
            table.update(changes, kinds=kinds)
    return table


TABLE = "modular-converter"
PROFILE_FILES = ("profile.toml", "ruff.toml")
"""The files of a profile of one's own."""
OPTIONS_FOR_FOLDERS = ("root", "output-dir")
"""The settings that name a folder, and may also be given on the command line, where they may lead anywhere."""
NAMED_FILE: ContextVar[str] = ContextVar("NAMED_FILE", default="")
"""The file that `--config` names, which is read in place of the nearest pyproject.toml."""
PROFILE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")


def load_settings(start: str | os.PathLike[str]) -> Settings:
    """The settings for files at or below `start`.

    They come from the file that `--config` names, else from the nearest pyproject.toml upwards that has a
    `[tool.modular-converter]` table; the search ends at a folder of installed packages. Raises `SettingsError` for a
    key that is unknown, a value of the wrong type, and a tool whose version is not the required one.
    """
    project = _named_file()
    black: TomlFile | None = None
    ruff = ""
    for folder in _upwards(os.path.abspath(start)):
        pyproject = toml_files.read_pyproject(folder)
        if pyproject is not None:
            if project is None and pyproject.has_table(TABLE):
                project = pyproject
            black = black or (pyproject if "black" in pyproject.tools else None)
        ruff = ruff or toml_files.ruff_config_in(folder, pyproject)
        if project is not None and ruff:
            break
    return _settings(os.path.abspath(start), project, ruff, black)


@functools.lru_cache(maxsize=16)
def profile_settings(name: str = PROFILES[0], release: Release = ()) -> Settings:
    """The settings of a built-in profile alone, with the conventions of a release of its package."""
    latest = dict(importlib.import_module(f"{profiles.__name__}.{name}").TABLE)
    older, checked = latest.pop("older", ()), latest.pop("checked-release", "")
    table = conventions(latest, older, release)
    path = os.path.join(PROFILE_FOLDER, f"{name}.ruff.toml")
    ruff = Path(path).read_text(encoding="utf-8") if os.path.isfile(path) else ""
    return replace(_of_profile(name, TomlFile(name, "", table), ruff), checked_release=checked)


def own_profile(folder: str) -> Settings:
    """The settings of a profile of one's own: a folder with the conventions of a library in `profile.toml`, and mostly
    its ruff configuration in `ruff.toml`.

    Raises `SettingsError` for a key that is unknown or missing, and a value of the wrong type.
    """
    file = toml_files.read_toml(os.path.join(folder, PROFILE_FILES[0]))
    known = READERS.keys() - PROJECT_KEYS
    for key in file.table:
        if key not in known:
            raise file.unknown(key, known)
    required = {one.name for one in dataclasses.fields(Settings) if one.default is one.default_factory}
    missing = [key for key in READERS if key in known - file.table.keys() and key.replace("-", "_") in required]
    if missing:
        raise SettingsError(settings_tables.incomplete(Location(file.path), missing))
    path = os.path.join(folder, PROFILE_FILES[1])
    ruff = toml_files.read_toml(path) if os.path.lexists(path) else TomlFile(path, "", {})
    if "extend" in ruff.ruff:
        raise ruff.error("extend", "of ruff is not followed in a profile")
    settings = _of_profile(folder, file, ruff.text)
    _refuse_overwriting(settings, file)
    return settings


def _of_profile(name: str, file: TomlFile, ruff_config: str) -> Settings:
    """The settings of a table of conventions."""
    values = read_table(file, file.table)
    pinned = PinnedFormatter(values["formatter"], values.pop("formatter_version", ""))
    kind = values["default_kind"]
    return Settings(profile=name, ruff_config=ruff_config, pinned_formatter=pinned, profile_kind=kind, **values)


def _refuse_overwriting(settings: Settings, file: TomlFile) -> None:
    """Raise `SettingsError` for a kind of file whose files would have the names of modular files."""
    for kind in settings.file_kinds:
        if would_be_modular(kind, settings) and kind != "{model}":
            key = "default-kind" if kind == settings.default_kind else "kinds"
            raise file.error(key, f"{kind!r} would overwrite the modular file, {modular_name('<model>', settings)}")


def _named_file() -> TomlFile | None:
    """The file that `--config` names. Raises `SettingsError` for one without our table."""
    path = NAMED_FILE.get()
    if not path:
        return None
    file = toml_files.read_toml(path)
    if not file.has_table(TABLE):
        raise SettingsError(settings_tables.no_table(Location(path)))
    return file


def _settings(start: str, project: TomlFile | None, ruff: str, black: TomlFile | None) -> Settings:
    """Lay the project's table over its profile, and find the ruff configuration in force."""
    values = _project_values(project) if project is not None else {}
    required = values.pop("required_version", "")
    if project is not None and required and not allows(required, __version__):
        place = project.place_of("required-version")
        raise SettingsError(settings_tables.other_tool(place, required, __version__).with_source(project.text))
    name = values.pop("profile", PROFILES[0])
    latest = own_profile(name) if os.path.isabs(name) else profile_settings(name)
    release = release_of(start, latest.package)
    if not os.path.isabs(name):
        latest = profile_settings(name, parse_release(release.version if release else ""))
    base = replace(latest, package_release=release)
    folder = os.path.dirname(ruff)
    if project is not None:
        if "ruff_config" in values:
            ruff, folder = _named_ruff_config(project, values.pop("ruff_config")), os.path.dirname(project.path)
        changed = {key: value for key, value in _added_to(base, values).items() if key != "formatter_version"}
        base = replace(base, pyproject=project.path, **changed)
        _refuse_overwriting(base, project)
    followed = toml_files.follow_extend(toml_files.read_toml(ruff)) if ruff else None
    isort: dict[str, Any] = {}
    if base.post_format:
        isort_folder, options = isort_options(start, _upwards(start))
        isort = {"isort_folder": isort_folder, "isort_options": json.dumps(options, sort_keys=True)}
    found = repository_above(start)
    return replace(
        base,
        **isort,
        black_config_path=black.path if black else "",
        project_folder=found if found in _upwards(start) else "",  # none in a folder of installed packages
        pinned_formatter=pinned_formatter(base, project, values, followed.files if followed else (), black),
        **(_ruff_options(followed, folder) if followed else {}),
    )


def _project_values(project: TomlFile) -> dict[str, Any]:
    """The values of a project's table by field name; its paths become absolute."""
    table = project.tools[TABLE]
    if not isinstance(table, dict):
        raise project.error(TABLE, "must be a table")
    values = read_table(project, table)
    if values.get("profile", PROFILES[0]) not in PROFILES:
        named = values["profile"]
        folder = _inside(project, "profile", named)
        if not os.path.isfile(os.path.join(folder, PROFILE_FILES[0])):
            known = ", ".join(f'"{one}"' for one in PROFILES)
            raise project.error("profile", f"must be {known}, or a folder with a {PROFILE_FILES[0]}, not {named!r}")
        values["profile"] = folder
    for key in OPTIONS_FOR_FOLDERS:
        name = key.replace("-", "_")
        if values.get(name):
            values[name] = _inside(project, key, values[name])
    return values


def _added_to(base: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with the profile's own entries in those that add to the profile. The profile's banner and
    what is left after converting name paths of its own package.
    """
    is_other = values.get("package", base.package) != base.package
    added = {
        **({"banner_root": "", "banner": PLAIN_BANNER, "left_after_converting": ()} if is_other else {}),
        **values,
    }
    if values.get("layout", base.layout) != base.layout:
        added = {"kinds": {}, "copied_kinds": {}, "optional_kinds": (), **added}  # those of the profile's own layout
    elif "kinds" in values:
        added["kinds"] = {**base.kinds, **values["kinds"]}
    if "kept_names" in values:
        added["kept_names"] = tuple(dict.fromkeys((*base.kept_names, *values["kept_names"])))
    return added


def _upwards(path: str) -> Iterator[str]:
    """The folder at `path` and those above it, up to a folder of installed packages."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return itertools.takewhile(lambda here: os.path.basename(here) not in INSTALLED, upwards(folder))


def _inside(project: TomlFile, key: str, value: str) -> str:
    """The absolute path that a setting names. It stays within the tree, which may be a stranger's."""
    path = project.beside(value)
    real, folder = os.path.realpath(path), os.path.realpath(os.path.dirname(project.path))
    if real != folder and not real.startswith(os.path.join(folder, "")):
        option = f"; give --{key} on the command line for that" if key in OPTIONS_FOR_FOLDERS else ""
        raise project.error(key, f"leads out of {folder}{option}")
    return path


def _named_ruff_config(project: TomlFile, named: str) -> str:
    """The file that `ruff-config` names; "" for `"profile"`, the profile's own settings."""
    if named == "profile":
        return ""
    path = _inside(project, "ruff-config", named)
    if not os.path.isfile(path):
        raise project.error("ruff-config", f"names a file that does not exist: {path}")
    return path


def _ruff_options(followed: RuffFiles, folder: str) -> dict[str, Any]:
    """The fields that follow from the project's ruff configuration."""
    own, *extended = followed.files
    return {
        "ruff_config": own.decides_format,
        "ruff_config_path": own.path,
        "ruff_extended": tuple((file.path, file.decides_format) for file in extended),
        "ruff_is_followed": followed.is_complete,
        "ruff_folder": folder,
        "ruff_source_roots": toml_files.ruff_source_roots(followed.files, folder),
    }


_NAMES = (*RUFF_NAMES, "pyproject.toml")


def load_settings_of(paths: Iterable[str], has_file: Callable[[str, str], bool] | None = None) -> Settings:
    """The settings for modular files, given as absolute paths: for each file those that it has when it is alone.

    Args:
        has_file: whether a folder has a file of a name, for a caller who has listed the folders.

    Raises `SettingsError` for a setting that cannot be obeyed, and for files of two projects with different settings.
    """
    has_file = has_file or (lambda folder, name: os.path.lexists(os.path.join(folder, name)))
    folders = sorted({os.path.dirname(path) for path in paths})
    own = {folder for folder in folders if any(has_file(folder, name) for name in _NAMES)}
    known: dict[str, Settings] = {}
    found = {folder: _of(folder, folder in own, known) for folder in folders}
    base = found[min((folder for folder in folders if folder not in own), default=folders[0])]
    for other in found.values():
        if other.pyproject != base.pyproject:
            raise SettingsError(settings_tables.mixed(*sorted((base.pyproject, other.pyproject), reverse=True)))
    differing = ((folder, one) for folder, one in found.items() if one is not base and one != base)
    return replace(base, by_folder=tuple(differing))


def _of(folder: str, has_own: bool, known: dict[str, Settings]) -> Settings:
    """The settings of a folder; those of the folder above, which most folders share, are loaded once."""
    above = os.path.dirname(folder)
    start = folder if has_own or above == folder else above
    if start not in known:
        known[start] = load_settings(start)
    return known[start]
