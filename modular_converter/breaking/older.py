"""The older tree that a change is compared with: a commit, a folder, a wheel, or a release from the package index.

Nothing is unpacked, checked out or imported: the texts stand in the overlay of a `Library`, under a folder that does not
exist.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from typing import NoReturn

from modular_converter.breaking.facts import ModelTree
from modular_converter.check.cache.store import digest
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import Listings, required_models_folder
from modular_converter.files.read import text_of_content
from modular_converter.findings import ConversionError
from modular_converter.git.work_tree import MOST_BYTES, GitError, WorkTrees
from modular_converter.rules import input_files
from modular_converter.settings.disk import is_below, project_above, read_regular
from modular_converter.settings.values import Settings


SECONDS = 300
"""Seconds that a download may take."""
_RELEASE = re.compile(r"([A-Za-z0-9][\w.-]*)==([\w.!+-]+)")


def older_tree(ref: str, models: str, settings: Settings, cache: str | None) -> ModelTree:
    """The models of an older tree.

    Args:
        ref: a commit or tag of the work tree of `models`, a folder, a wheel, or `package==version`.
        models: the folder of models of the newer tree.
        settings: those of the newer tree.
        cache: the folder that keeps downloaded wheels; None for a temporary one.

    Raises `ConversionError` for a tree that cannot be read.
    """
    if os.path.isdir(ref):
        return tree_at(_models_in(ref, models), settings)
    if ref.endswith(".whl"):
        return _of_wheel(ref, models, settings)
    if found := _RELEASE.fullmatch(ref):
        with tempfile.TemporaryDirectory() as folder:
            return _of_wheel(_downloaded(found[1], found[2], cache or folder), models, settings)
    return _of_commit(ref, models, settings)


def _models_in(ref: str, models: str) -> str:
    """The folder of models of another folder, which may be another checkout. Raises `ConversionError`."""
    top = project_above(models)
    same = os.path.join(os.path.abspath(ref), os.path.relpath(models, top)) if top else ""
    return same if os.path.isdir(same) else required_models_folder(None, ref)


def state_of_older(ref: str, models: str) -> str:
    """A text that changes with the older tree; "" where that is not known. The arguments are those of `older_tree`."""
    try:
        if os.path.isdir(ref):
            return state_of_folder(os.path.dirname(_models_in(ref, models)))
        if ref.endswith(".whl"):
            return digest(read_regular(ref, MOST_BYTES))
        return ref if _RELEASE.fullmatch(ref) else WorkTrees().of(models).commit(ref)
    except (OSError, GitError, ConversionError):
        return ""


def state_of_folder(folder: str) -> str:
    """A text that changes with the Python files of a folder; "" where that is not known, as behind links to folders."""
    found = hashlib.sha256()
    try:
        for here, folders, names in os.walk(folder, onerror=_fail):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            if any(os.path.islink(os.path.join(here, name)) for name in folders):
                return ""
            for name in sorted(name for name in names if name.endswith(".py")):
                path = os.path.join(here, name)
                content = hashlib.sha256(read_regular(path, MOST_BYTES)).hexdigest()
                found.update(f"{os.path.relpath(path, folder)}\0{content}\0".encode("utf-8", "surrogateescape"))
    except OSError:
        return ""
    return found.hexdigest()


def _fail(error: OSError) -> NoReturn:
    raise error


def tree_at(models: str, settings: Settings, overlay: Mapping[str, str] | None = None) -> ModelTree:
    """The models of a folder on disk, with texts that stand for others."""
    listings = Listings()
    with os.scandir(models) as found:
        folders = sorted(entry.name for entry in found if entry.is_dir())
    names = {
        one: [name for name in listings.of(os.path.join(models, one)).files if name.endswith(".py")] for one in folders
    }
    for path in overlay or ():
        folder, name = os.path.split(path)
        names[os.path.basename(folder)] = sorted({*names.get(os.path.basename(folder), ()), name})
    return ModelTree(Library(settings, dict(overlay or {})), models, names)


ROOT = "`--root` names a package, or its folder of models"


def _of_texts(
    label: str, models: str, texts: Iterable[tuple[str, bytes]], settings: Settings, ref: str = ""
) -> ModelTree:
    """The tree of texts by their names below the folder of the package; `models` is the name of the folder in it, and `ref`
    what the user calls the tree, if it is not the label.
    """
    top = os.path.join(os.path.abspath(os.sep), "older", label.replace(os.sep, "-"))
    overlay: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    for name, content in texts:
        path = os.path.join(top, *name.split("/"))
        try:
            overlay[path] = text_of_content(path, content)
        except ConversionError:
            continue  # the check of that file tells of it
        folder, _, last = name.rpartition("/")
        above, _, model = folder.rpartition("/")
        if above == models:
            names.setdefault(model, []).append(last)
    if not names:
        reason = f"it has no models in `{models}`; {ROOT}"
        raise ConversionError(input_files.unknown_older_tree(ref or label, reason))
    return ModelTree(
        Library(settings, overlay),
        os.path.join(top, *models.split("/")),
        {one: sorted(all) for one, all in names.items()},
    )


def _of_wheel(path: str, models: str, settings: Settings) -> ModelTree:
    package = os.path.basename(os.path.dirname(models))
    try:
        with zipfile.ZipFile(path) as wheel:
            entries = [
                one
                for one in wheel.infolist()
                if one.filename.endswith(".py") and one.file_size <= settings.max_file_bytes
            ]
            wanted = [one for one in entries if one.filename.startswith(f"{package}/")]
            texts = [(one.filename, wheel.read(one)) for one in wanted]
    except (OSError, zipfile.BadZipFile) as error:
        reason = f"the wheel cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConversionError(input_files.unknown_older_tree(path, reason)) from None
    return _of_texts(os.path.basename(path), f"{package}/{os.path.basename(models)}", texts, settings)


def _of_commit(ref: str, models: str, settings: Settings) -> ModelTree:
    try:
        repository = WorkTrees().of(models)
        commit = repository.commit(ref)
        package, top = os.path.dirname(os.path.realpath(models)), os.path.realpath(repository.top)
        if not is_below(package, top):
            reason = f"`{models}` is the top of a repository, and no package"
            raise ConversionError(input_files.unknown_older_tree(ref, f"{reason}; {ROOT}"))
        below = os.path.relpath(package, top)
        folder = "" if below == os.curdir else below.replace(os.sep, "/")
        texts = repository.texts(commit, folder, ".py", settings.max_file_bytes)
    except GitError as error:
        reason = f"{error}; it is no folder, wheel or `package==version` either"
        raise ConversionError(input_files.unknown_older_tree(ref, reason)) from None
    name = os.path.basename(models)
    return _of_texts(commit, f"{folder}/{name}" if folder else name, texts, settings, ref)


def _downloaded(package: str, version: str, folder: str) -> str:
    """The wheel of a release, downloaded by pip, which runs nothing of it."""
    release = f"{package}=={version}"
    folder = os.path.join(folder, release)  # of its own: pip decides how the wheel's name writes the two
    os.makedirs(folder, exist_ok=True)
    last_line = "no wheel came"
    if not (known := _wheel_in(folder)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        try:
            done = subprocess.run(
                [*command, "--dest", folder, release], capture_output=True, text=True, timeout=SECONDS, check=False
            )
            last_line = (done.stderr.strip().splitlines() or [last_line])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            last_line = str(error)
        known = _wheel_in(folder)
    if not known:
        reason = f"pip cannot download it ({last_line}); give the path of a wheel instead"
        raise ConversionError(input_files.unknown_older_tree(release, reason))
    return known


def _wheel_in(folder: str) -> str:
    names = (name for name in sorted(os.listdir(folder)) if name.endswith(".whl"))
    return next((os.path.join(folder, name) for name in names), "")
