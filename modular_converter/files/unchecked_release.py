"""A release that the profile has not been checked with (MC394): what is said of it, and the files that are kept."""

from __future__ import annotations

import os
from collections.abc import Iterable

from modular_converter.findings import ConversionError, Finding
from modular_converter.rules import unchecked_release
from modular_converter.settings.parent_folders import is_below
from modular_converter.settings.release import is_unchecked
from modular_converter.settings.values import Settings


def about_release(settings: Settings, *, keeps_files: bool = False) -> Finding | None:
    """The finding about an unchecked release of the package; None where all is known.

    Args:
        settings: the settings of the run.
        keeps_files: whether the release has kept a file from being changed.
    """
    release = settings.package_release
    if release is None or not is_unchecked(settings):
        return None
    package = os.path.basename(os.path.dirname(release.place.path))
    return unchecked_release.diagnose(
        release.place, package, release.version, settings.checked_release, keeps_files=keeps_files
    )


def is_about_release(findings: Iterable[Finding]) -> bool:
    """Whether all of some findings say that an unchecked release keeps files from being changed."""
    return all(one.rule is unchecked_release.RULE for one in findings)


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
