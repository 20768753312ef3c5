"""Run ruff over all texts at once: one `ruff check --fix`, then one `ruff format`, in a temporary tree."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from modular_converter.convert.emit.formatters import (
    Formatted,
    UndefinedName,
    environment,
    find_ruff,
    own_ruff,
    ruff_version,
)
from modular_converter.files.write import sweep
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import tool_errors
from modular_converter.settings.disk import is_below
from modular_converter.settings.load import REQUIRED
from modular_converter.settings.values import Settings


SECONDS, SECONDS_PER_FILE = 60.0, 0.5
"""The seconds that one run of ruff may take. The whole corpus takes a few seconds."""
TREE = re.compile(r"^modular-converter-(\d+)-")
"""The name of a temporary tree; the number is the process that made it."""
FILE_LIST = "files"
"""The file beside the tree that lists the texts, one on each line: a command line is too short for all."""
ANY_VERSION = 'required-version=">=0"'
_UNREADABLE = re.compile("[\n\r\ud800-\udfff]")
_PRIVATE = 0x100000


class Tree(NamedTuple):
    """A temporary tree that holds each text under its final path."""

    folder: str
    places: Mapping[str, str]
    """Name of a text -> its path relative to `folder`."""
    options: tuple[str, ...]
    """Ruff's options for the tree, and the texts."""


def run(files: Mapping[str, str], settings: Settings) -> Formatted:
    """Format `files` by the ruff configuration in force. Raises `ConversionError` when ruff fails as a whole."""
    with _tree(files, settings) as tree:
        report = _call(tree, settings, "check", "--fix", "--no-fix-only", "--extend-select=F821")
        complaint = _call(tree, settings, "format")
        if _undefined(tree, report):  # rare; checked again, since formatting has moved the names to other lines
            report = _call(tree, settings, "check", "--no-fix", "--no-fix-only", "--select=F821")
        texts = {name: _read(os.path.join(tree.folder, place)) for name, place in tree.places.items()}
        return Formatted(texts, _undefined(tree, report), _rejected(tree, settings, complaint))


def undefined_names(files: Mapping[str, str], settings: Settings) -> dict[str, tuple[UndefinedName, ...]]:
    """The undefined names in texts that another formatter has formatted. Raises `ConversionError` as `run` does."""
    with _tree(files, settings) as tree:
        return _undefined(tree, _call(tree, settings, "check", "--no-fix", "--no-fix-only", "--select=F821"))


def version() -> str:
    """The version of the ruff program of this environment."""
    return ruff_version(own_ruff())


def _rejected(tree: Tree, settings: Settings, complaint: str) -> dict[str, Finding]:
    """The error of each text that ruff's messages name. Raises `ConversionError` for a message that names none."""
    found = {}
    for name, place in tree.places.items() if complaint else ():
        lines = [line for line in complaint.splitlines() if f" {place}:" in line]
        if lines:
            found[name] = tool_errors.formatter_failed(Location(name), "ruff", lines[0])
    if complaint and not found:
        raise _error(settings, complaint)
    return found


def _error(settings: Settings, reason: str) -> ConversionError:
    """The error that ruff itself has failed."""
    place = Location(settings.ruff_config_path or "ruff")
    return ConversionError(tool_errors.formatter_failed(place, "ruff", reason))


@contextlib.contextmanager
def _tree(files: Mapping[str, str], settings: Settings) -> Iterator[Tree]:
    """Write the texts to a temporary tree, and remove it at the end; trees of killed processes are removed too."""
    sweep(tempfile.gettempdir(), TREE, functools.partial(shutil.rmtree, ignore_errors=True))
    above = ""
    try:
        try:
            above = os.path.realpath(tempfile.mkdtemp(prefix=f"modular-converter-{os.getpid()}-"))
            tree = _lay_out(files, settings, above)
        except OSError as error:
            raise _error(settings, f"its temporary tree cannot be written: {error.strerror or error}") from None
        yield tree
    finally:
        shutil.rmtree(above, ignore_errors=True)


def _lay_out(files: Mapping[str, str], settings: Settings, above: str) -> Tree:
    """Write the tree, the configuration and the list of the texts into a folder. Raises `OSError`."""
    config = settings.ruff_config_path
    if not config:
        config = os.path.join(above, "ruff.toml")
        _write(config, settings.ruff_config)
    folder = os.path.join(above, "tree")
    places = {name: _readable(_place(os.path.abspath(name), settings.ruff_folder)) for name in files}
    if len(set(places.values())) < len(places):
        raise _error(settings, "two files would have one name in its temporary tree; rename one of them")
    for parent in sorted({os.path.dirname(place) for place in places.values()}):
        os.makedirs(os.path.join(folder, parent), exist_ok=True)
        _mirror_packages(folder, parent, settings.ruff_folder)
    for name, place in places.items():
        _write(os.path.join(folder, place), files[name])
    _write(os.path.join(above, FILE_LIST), "".join(f".{os.sep}{place}\n" for place in places.values()))
    options = _options(config, _readable_roots(settings.ruff_source_roots, above))
    # A `required-version` is left out where the settings have named a version, or accept any.
    texts = (settings.ruff_config, *(text for _, text in settings.ruff_extended))
    if not settings.formatter_judges_version and any(REQUIRED in text for text in texts):
        options = ("--config", ANY_VERSION, *options)
    return Tree(folder, places, options)


def _place(path: str, base: str) -> str:
    """The place of an absolute path in the tree: as below the project's folder `base`, else with all its folders.

    Patterns of a configuration then match as they do in the project, and no text's place depends on the others.
    """
    if base and is_below(path, base):
        return os.path.relpath(path, base)
    return os.path.splitdrive(path)[1].lstrip("/\\")


def _readable(place: str) -> str:
    """The place with private-use characters for bytes and line breaks that a list of files in UTF-8 cannot hold."""
    return _UNREADABLE.sub(lambda match: chr(_PRIVATE + ord(match[0])), place)


def _readable_roots(roots: Sequence[str], above: str) -> list[str]:
    """The source roots; a link stands for a root whose path cannot be written in UTF-8."""
    found = []
    for number, root in enumerate(roots):
        if _UNREADABLE.search(root):
            link = os.path.join(above, f"root{number}")
            os.symlink(root, link)
            root = link
        found.append(root)
    return found


def _mirror_packages(folder: str, parent: str, base: str) -> None:
    """Make `parent` a package in the tree if it is one in the project, since ruff takes that to be first-party."""
    while base and parent:
        marker = os.path.join(folder, parent, "__init__.py")
        if os.path.isfile(os.path.join(base, parent, "__init__.py")) and not os.path.exists(marker):
            _write(marker, "")
        parent = os.path.dirname(parent)


def _options(config: str, roots: Sequence[str]) -> tuple[str, ...]:
    """The options of ruff: the configuration, the first-party folders (else they follow from its place), the texts."""
    escaped = (root.replace("\\", "\\\\").replace('"', '\\"') for root in roots)
    source = "src=[" + ", ".join(f'"{root}"' for root in escaped) + "]"
    return ("--no-cache", "--no-force-exclude", "--config", config, "--config", source, f"@../{FILE_LIST}")


def _call(tree: Tree, settings: Settings, command: str, *options: str) -> str:
    """Run ruff in the tree. Returns the report of a check; for a format ruff's messages, or ""."""
    if command == "check":
        options = ("--exit-zero", "--output-format=json", *options)
    code, output, errors = _start(tree, settings, [find_ruff(settings), command, *options, *tree.options])
    if command == "check":
        if code != 0:
            raise _error(settings, errors or f"it ended with exit code {code}")
        return output
    return (errors or f"it ended with exit code {code}") if code != 0 else ""


def _start(tree: Tree, settings: Settings, command: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command. It is ended when it takes too long."""
    limit = SECONDS + SECONDS_PER_FILE * len(tree.places)
    try:
        done = subprocess.run(
            command, cwd=tree.folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise _error(settings, f"it took more than {limit:.0f} seconds") from None
    except OSError as error:
        raise _error(settings, f"it could not be started: {error.strerror or error}") from None
    return (
        done.returncode,
        done.stdout.decode("utf-8", errors="replace"),
        done.stderr.decode("utf-8", errors="replace").strip(),
    )


def _undefined(tree: Tree, report: str) -> dict[str, tuple[UndefinedName, ...]]:
    """The undefined names of a check's report by text."""
    if "F821" not in report:
        return {}
    found: dict[str, list[UndefinedName]] = {}
    names = {os.path.normcase(place): name for name, place in tree.places.items()}
    for entry in json.loads(report):
        name = names.get(os.path.normcase(os.path.relpath(entry["filename"], tree.folder)))
        if entry["code"] == "F821" and name is not None:
            place, quoted = entry["location"], entry["message"].split("`")
            undefined = UndefinedName(quoted[1] if len(quoted) > 1 else "", place["row"], place["column"])
            found.setdefault(name, []).append(undefined)
    return {name: tuple(sorted(found[name], key=lambda item: (item.line, item.column))) for name in sorted(found)}


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
