"""The interface of a formatter: a module `format_<name>.py` of this package with `run` and `version`. And the
formatter program of a run and its version, without the modules that run it: a warm check needs no more.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from modular_converter.files.read import SUFFIX, program_on_path
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import tool_errors
from modular_converter.settings.load import allows
from modular_converter.settings.values import Settings


class UndefinedName(NamedTuple):
    """A name that a formatted text uses but neither defines nor imports. Line and column count from 1."""

    name: str
    line: int
    column: int


class Formatted(NamedTuple):
    """The result of a formatter, by the names of the texts."""

    texts: Mapping[str, str]
    """Every text; a text that could not be formatted is unchanged."""
    undefined: Mapping[str, tuple[UndefinedName, ...]] | None = None
    """The undefined names of each file that has some; None when the formatter does not look for them."""
    failures: Mapping[str, Finding] = MappingProxyType({})
    """The error of each text that the formatter rejected."""


class Formatter(Protocol):
    """The two functions of a module `format_<name>.py`."""

    def run(self, files: Mapping[str, str], settings: Settings) -> Formatted:
        """Format texts, keyed by their final paths. Raises `ConversionError` (MC115) when nothing can be formatted."""

    def version(self) -> str:
        """The version of the formatter; "" for one without versions."""


def one_by_one(name: str, files: Mapping[str, str], change: Callable[[str], str]) -> Formatted:
    """The texts as a function of the library `name` gives them. It raises errors of several kinds, each about one text."""
    texts, failures = dict(files), {}
    for path, text in files.items():
        try:
            texts[path] = change(text)
        except Exception as error:
            failures[path] = tool_errors.formatter_failed(Location(path), name, str(error))
    return Formatted(texts, failures=failures)


def load_formatter(name: str) -> Formatter:
    """The module of a formatter, one of `FORMATTERS` of the settings. Only the formatter in use is imported."""
    return cast("Formatter", importlib.import_module(f"{__package__}.format_{name}"))


EDGE_BYTES = 65536
"""The bytes of a program that are read at either end. Ruff has tens of megabytes; the linker's identifier is at the
start.
"""
SECONDS = 30.0
"""The seconds that `ruff --version` may take. It takes 5 milliseconds."""
NEEDED = ("SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "RAYON_NUM_THREADS")
"""The environment variables that a program may need to start, or that limit it."""
_ANSWER = re.compile(r"ruff (\d[\w.+-]{0,40})\s")
VersionOf = Callable[[str], str]
"""Gives the version of the ruff program at a path."""


def formatter_stamp(settings: Settings, version_of: VersionOf | None = None) -> str:
    """A text that changes when the formatter of the run or of a folder changes. Raises `ConversionError` (MC115)."""
    others = [one.formatter for one in settings.post_format]
    programs: set[str] = set()
    if settings.formatter == "ruff":
        programs = {
            find_ruff(one, version_of) for one in _by_version(settings.formattings)
        }  # imports no `format_ruff`
    else:
        others.append(settings.formatter)
    versions = (f"{name} {load_formatter(name).version()}".rstrip() for name in others)
    return " ".join((*map(program_stamp, sorted(programs)), *versions))


def wrong_versions(
    settings: Settings, folders: Iterable[str], version_of: VersionOf | None = None
) -> tuple[Finding, ...]:
    """The errors (MC118) about the formatter of modular files in some folders, one for each version that is named.

    Raises `ConversionError` as `wrong_version` does.
    """
    formattings = _by_version([settings.formatting(folder) for folder in sorted(set(folders))])
    return tuple(found for one in formattings if (found := wrong_version(one, version_of)))


def _by_version(formattings: Sequence[Settings]) -> Sequence[Settings]:
    """For each named version the first settings that name it, in order."""
    found: dict[str, Settings] = {}
    for one in formattings:
        found.setdefault(one.formatter_version, one)
    return [*found.values()]


def wrong_version(settings: Settings, version_of: VersionOf | None = None) -> Finding | None:
    """The error (MC118) when a formatter has another version than the settings name; None when all is right.

    Raises `ConversionError` (MC115) when a formatter is missing or tells no version.
    """
    for one in settings.post_format:
        found = load_formatter(one.formatter).version()
        if one.version and not allows(one.version, found):
            place = Location(settings.pyproject or one.formatter)
            return tool_errors.formatter_version(place, one.formatter, one.version, found, setting="post-format")
    wanted = settings.formatter_version
    if not wanted or settings.formatter == "none":
        return None
    if settings.formatter == "ruff":
        found = (version_of or ruff_version)(find_ruff(settings, version_of))
    else:
        found = load_formatter(settings.formatter).version()
    if allows(wanted, found):
        return None
    pinned = settings.pinned_formatter
    place = (pinned and pinned.place) or Location(settings.formatter)
    return tool_errors.formatter_version(place, settings.formatter, wanted, found)


def find_ruff(settings: Settings, version_of: VersionOf | None = None) -> str:
    """The ruff program for these settings: that of this environment, or the first on PATH if only that one fits.

    Args:
        settings: they may name a version.
        version_of: `ruff_version` when left out.
    """
    own = own_ruff()
    if own and settings.formatter == "ruff" and settings.formatter_version:
        version_of = version_of or ruff_version
        if not allows(settings.formatter_version, version_of(own)):
            other = program_on_path("ruff", settings.project_folder)
            if other and allows(settings.formatter_version, version_of(other)):
                return other
    found = own or program_on_path("ruff", settings.project_folder)
    if not found:
        raise ConversionError(tool_errors.missing("ruff"))
    return found


@functools.lru_cache(maxsize=1)
def own_ruff() -> str:
    """The ruff program of this environment: beside the interpreter, else where its package says; "" for none."""
    if sys.executable:
        beside = os.path.join(os.path.dirname(sys.executable), f"ruff{SUFFIX}")
        if os.path.isfile(beside) and os.access(beside, os.X_OK):
            return beside
    with contextlib.suppress(ImportError, FileNotFoundError):
        from ruff.__main__ import find_ruff_bin  # type: ignore[import-untyped]

        return str(find_ruff_bin())
    return ""


def ruff_version(path: str) -> str:
    """The version that a ruff program prints: `0.14.10`. Raises `ConversionError` (MC115)."""
    facts = os.stat(path)
    return _ruff_version(path, facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _ruff_version(path: str, size: int, time: int) -> str:
    """The same; size and time are arguments so that a replaced program is asked again."""
    import subprocess  # takes 3 ms; a check without changes remembers the version
    import tempfile

    try:
        done = subprocess.run(
            [path, "--version"],
            cwd=tempfile.gettempdir(),
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_version(path, getattr(error, "strerror", None) or "it takes too long") from None
    answer = _ANSWER.match(done.stdout.decode("utf-8", "replace") + "\n")
    if answer is None:
        error_output = done.stderr.decode("utf-8", "replace").strip()[:200]
        raise _no_version(path, error_output or f"it ended with exit code {done.returncode}")
    return answer[1]


def _no_version(path: str, reason: str) -> ConversionError:
    return ConversionError(
        tool_errors.formatter_failed(Location(path), "ruff", f"`{path} --version` tells no version: {reason}")
    )


def environment() -> dict[str, str]:
    """The environment of ruff: without ruff's own variables, which change its result, and without private ones. A
    stranger's configuration may name variables, and ruff would show them in messages.
    """
    return {name: os.environ[name] for name in NEEDED if name in os.environ} | {"NO_COLOR": "1"}


def program_stamp(path: str) -> str:
    """The path and size of a program, and a hash of both its ends. Raises `OSError`."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        edges = file.read(EDGE_BYTES)
        file.seek(max(0, size - EDGE_BYTES))
        edges += file.read(EDGE_BYTES)
    return f"{path} {size} {hashlib.sha256(edges).hexdigest()}"
