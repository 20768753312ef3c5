"""The formatters that a project runs, by its hooks of pre-commit and the tables of its `pyproject.toml`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from modular_converter.settings import toml_files
from modular_converter.settings.disk import is_below, repository_above, upwards
from modular_converter.settings.keys import EXACT_VERSION
from modular_converter.settings.toml_files import other_options


HOOKS = ".pre-commit-config.yaml"
DEFAULT_LENGTH = 88
"""The line length of black and of ruff for a project that says nothing; this tool has that of transformers then."""
_REPO = re.compile(r"^[ \t]*-[ \t]+repo:", re.MULTILINE)
_REV = re.compile(r"^[ \t]*rev:[ \t]*[\"']?v?([\w.]+)", re.MULTILINE)
_ID = re.compile(r"(?:^[ \t]*(?:-[ \t]+)?|\{[ \t]*)id:[ \t]*[\"']?([\w-]+)", re.MULTILINE)
_ARGS = re.compile(r"^[ \t]*args:[ \t]*(\S.*)", re.MULTILINE)
_HARMLESS = re.compile(r"(?<![\w-])(?:--(?:quiet|verbose|check|diff|fix|safe|fast|filter-files)|-[qv])(?![\w-])")
"""Options that change no layout."""


class ToolsInUse(NamedTuple):
    """The formatters of a project."""

    formatter: str
    """One of `FORMATTERS`."""
    version: str = ""
    """The version that its hook names; "" for none."""
    line_length: object = ""
    """What its table says; "" for nothing."""
    has_table: bool = True
    """Whether the project has options of the formatter."""
    post_format: tuple[str, ...] = ()
    """The setting `post-format`."""
    unseen: tuple[str, ...] = ()
    """Hooks with options on their command line, which a conversion does not see, with these options."""


class _Hook(NamedTuple):
    name: str
    version: str
    arguments: str


def tools_in_use(project: str, models: str = "") -> ToolsInUse:
    """The formatters of a project. Its hooks count first, since they run. Raises `SettingsError`.

    Args:
        project: the folder with its hooks, or one in the repository that has them.
        models: the folder of models; the tables of a project of its own between the two count before those above.
    """
    tables: dict[str, object] = {}
    for folder in takewhile(lambda one: is_below(one, project), upwards(models or project)):
        tables = {**_tables(folder), **tables}
    hooked = [folder for folder in upwards(project) if is_below(folder, repository_above(project) or project)]
    paths = (os.path.join(folder, HOOKS) for folder in hooked)
    hooks = {one.name: one for one in _hooks(next(filter(os.path.isfile, paths), ""))}
    by_hook = [name for name, hook in (("ruff", "ruff-format"), ("black", "black")) if hook in hooks]
    by_table = [name for name in ("black", "ruff") if name in tables]
    formatter = next(iter((*by_hook, *by_table)), "none")
    hook = hooks.get("ruff-format" if formatter == "ruff" else formatter)
    options = tables.get(formatter)
    isort = hooks.get("isort")
    unseen = ((one.name, _HARMLESS.sub("", one.arguments)) for one in (hook, isort) if one)
    return ToolsInUse(
        formatter,
        hook.version if hook else "",
        options.get("line-length", "") if isinstance(options, Mapping) else "",
        formatter == "none" or formatter in tables,
        (f"isort=={isort.version}" if isort and isort.version else "isort",) if isort or "isort" in tables else (),
        tuple(f"{name}: {arguments}" for name, arguments in unseen if "-" in arguments),
    )


def _tables(folder: str) -> dict[str, object]:
    """The options of formatters that a folder has."""
    pyproject = toml_files.read_pyproject(folder)
    tables = dict(pyproject.tools) if pyproject else {}
    if ruff := toml_files.ruff_config_in(folder, pyproject):
        tables["ruff"] = toml_files.read_toml(ruff).ruff
    if other := other_options(folder):
        tables["isort"] = other[1]
    return tables


def _hooks(path: str) -> Iterator[_Hook]:
    """The hooks of a file for pre-commit, as far as its lines tell."""
    if not os.path.isfile(path):
        return
    for repo in _REPO.split(toml_files.read_text(path))[1:]:
        revision = _REV.search(repo)
        version = revision[1] if revision and EXACT_VERSION.fullmatch(revision[1]) else ""
        places = [*_ID.finditer(repo)]
        for place, end in zip(places, [*(one.start() for one in places[1:]), len(repo)], strict=True):
            arguments = _ARGS.search(repo, place.end(), end)
            yield _Hook(place[1], version, arguments[1] if arguments else "")
