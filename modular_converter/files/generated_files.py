"""Where generated files go, and how they are written: never into an installed package, never out of the root. A release
that the profile has not been checked with (MC394) keeps them as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from modular_converter.files.read import is_installed, read_inside, root_of
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import input_files, settings_tables
from modular_converter.settings.disk import FileTooLarge, is_below
from modular_converter.settings.layout import is_modular, models_folder_of
from modular_converter.settings.load import is_unchecked
from modular_converter.settings.values import Settings


def path_of_generated(path: str, settings: Settings) -> str:
    """Where a generated file goes: beside its modular file, or below the configured folder."""
    if not settings.output_dir:
        return path
    return os.path.join(settings.output_dir, os.path.relpath(path, models_folder_of(path, settings)))


def same_targets(paths: Sequence[str], settings: Settings) -> dict[str, Finding]:
    """An error for each modular file whose generated files would be written over those of another, by its path."""
    places: dict[str, list[str]] = {}
    for path in paths if settings.output_dir else ():
        places.setdefault(path_of_generated(path, settings), []).append(path)
    return {
        path: input_files.same_place(Location(path), next(one for one in found if one != path), settings.output_dir)
        for found in places.values()
        if len(found) > 1
        for path in found
    }


def current_text(target: str, settings: Settings) -> str | None:
    """The text of a generated file on disk, line breaks unchanged; None when it is missing or unreadable.

    Raises `ConversionError` for a link out of the root, and for a file over the size limit.
    """
    try:
        return read_inside(target, settings).decode("utf-8")
    except FileTooLarge as error:
        raise ConversionError(input_files.too_large(Location(target), error.size, settings.max_file_bytes)) from None
    except (OSError, UnicodeDecodeError):
        return None


def put_in_place(target: str, text: str, modular: str, settings: Settings) -> bool:
    """Write a generated file; return whether that changed anything.

    Raises `ConversionError` when it may not or cannot be written, when it would change in an unchecked release, and when
    its modular file is gone: a model that was removed during the run must not come back.
    """
    from modular_converter.files.atomic_write import resolve_inside, sweep, write_atomically

    if is_modular(target.casefold(), settings):
        raise ConversionError(input_files.read_only_target(Location(target), "it has the name of a modular file"))
    if not settings.output_dir and is_installed(target):
        raise ConversionError(input_files.read_only_target(Location(target), "it belongs to an installed package"))
    if not os.path.isfile(modular):
        raise ConversionError(input_files.missing_file(Location(modular), reason="it was removed during the run"))
    if is_unchecked(settings) and current_text(target, settings) != text:
        refuse_change(target, settings)
    resolve_inside(target, settings.output_dir or os.path.dirname(target))
    sweep(os.path.dirname(target))
    return write_atomically(target, text, settings.output_dir or root_of(target, settings))


def about_release(settings: Settings, *, keeps_files: bool = False) -> Finding | None:
    """The finding about an unchecked release of the package; None where all is known.

    Args:
        keeps_files: whether the release has kept a file from being changed.
    """
    release = settings.package_release
    if release is None or not is_unchecked(settings):
        return None
    package = os.path.basename(os.path.dirname(release.place.path))
    return settings_tables.unchecked_release(
        release.place, package, release.version, settings.checked_release, keeps_files=keeps_files
    )


def is_about_release(findings: Iterable[Finding]) -> bool:
    """Whether all of some findings say that an unchecked release keeps files from being changed."""
    return all(one.rule is settings_tables.UNCHECKED_RELEASE for one in findings)


def refuse_change(target: str, settings: Settings) -> None:
    """Raise `ConversionError` (MC394) for a file of an unchecked release that exists. It is about to be changed."""
    release = settings.package_release
    if release is None or not is_unchecked(settings) or not os.path.lexists(target):
        return
    package = os.path.dirname(release.place.path)
    if is_below(target, package) or is_below(os.path.realpath(target), os.path.realpath(package)):
        finding = about_release(settings, keeps_files=True)
        assert finding is not None
        raise ConversionError(finding)
