"""The formatters that a project runs, by its hooks of pre-commit and the tables of its `pyproject.toml`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from modular_converter.settings import toml_files
from modular_converter.settings.keys import EXACT_VERSION


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


def tools_in_use(project: str) -> ToolsInUse:
    """The formatters of the project in a folder. Its hooks count first, since they run. Raises `SettingsError`."""
    pyproject = toml_files.read_pyproject(project)
    tables = dict(pyproject.tools) if pyproject else {}
    if ruff := toml_files.ruff_config_in(project, pyproject):
        tables["ruff"] = toml_files.read_toml(ruff).ruff
    hooks = {one.name: one for one in _hooks(os.path.join(project, HOOKS))}
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
