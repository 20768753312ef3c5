"""The set-up of the merge driver: a block of `.gitattributes` that names the generated files, and the driver in the
configuration of the clone, which git never takes from a repository.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection

from modular_converter.files.atomic_write import replace_file
from modular_converter.findings import Finding, Location
from modular_converter.git.work_tree import GitError, Repository, WorkTrees, run_git
from modular_converter.rules import stale_files


ATTRIBUTES = ".gitattributes"
START, END = "# modular-converter: generated files", "# modular-converter: end"
NAME = "modular-converter"
COMMAND = f'"{sys.executable}" -m modular_converter merge-driver resolve %O %A %B %P'
_KEYS = {
    f"merge.{NAME}.name": "convert generated files from the merged modular files",
    f"merge.{NAME}.driver": COMMAND,
}


def install_driver(repository: Repository, generated: Collection[str]) -> str:
    """Write the block and the configuration; returns the path of the attributes.

    Args:
        repository: the work tree.
        generated: the generated files in it, as absolute paths.
    """
    path = os.path.join(repository.top, ATTRIBUTES)
    before, _, after = _parts(_read(path))
    _write(path, before + _block(repository, generated) + after)
    for key, value in _KEYS.items():
        run_git(repository.top, "config", "--local", key, value)
    return path


def uninstall_driver(repository: Repository) -> str:
    """Remove both; returns the path of the attributes."""
    path = os.path.join(repository.top, ATTRIBUTES)
    before, block, after = _parts(_read(path))
    if block:
        _write(path, before + after)
    with contextlib.suppress(GitError):  # it is not there
        run_git(repository.top, "config", "--local", "--remove-section", f"merge.{NAME}")
    return path


def missing_setup(folder: str, generated: Collection[str]) -> list[Finding]:
    """The finding about a set-up that the project has, and that this clone lacks or that names other files."""
    try:
        repository = WorkTrees().of(folder)
        path = os.path.join(repository.top, ATTRIBUTES)
        _, block, _ = _parts(_read(path))
        if not block:
            return []
        if block != _block(repository, generated):
            return [stale_files.merge_setup_missing(Location(path), "it does not name the generated files of today")]
        output = run_git(repository.top, "config", "--local", "--default", "", "--get", f"merge.{NAME}.driver")
    except (GitError, OSError):
        return []
    if output.decode("utf-8", "replace").strip():
        return []
    return [stale_files.merge_setup_missing(Location(path), "the driver is not in the configuration of this clone")]


def _block(repository: Repository, generated: Collection[str]) -> str:
    top = os.path.realpath(repository.top)
    names = sorted(os.path.relpath(os.path.realpath(one), top).replace(os.sep, "/") for one in generated)
    lines = (
        f'"/{name}" merge={NAME} linguist-generated' if " " in name else f"/{name} merge={NAME} linguist-generated"
        for name in names
    )
    return "\n".join((START, *lines, END)) + "\n"


def _parts(text: str) -> tuple[str, str, str]:
    """The text before the block, the block, and the text behind it."""
    start, end = text.find(START), text.find(END)
    if start < 0 or end < start:
        return text + ("\n" if text and not text.endswith("\n") else ""), "", ""
    end = text.find("\n", end) + 1 or len(text)
    return text[:start], text[start:end], text[end:]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(path: str, text: str) -> None:
    if text:
        replace_file(path, text.encode("utf-8", "surrogateescape"))
    elif os.path.exists(path):
        os.unlink(path)
