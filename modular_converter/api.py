"""The converter as a library: convert a text, a file or many files. Mistakes in them come back as findings."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from modular_converter.convert.batch import Progress, Run
from modular_converter.files.read import given_text
from modular_converter.findings import Conversion, ConversionError
from modular_converter.settings.load import load_settings, load_settings_of
from modular_converter.settings.values import Settings


def convert_source(source: str, path: str | os.PathLike[str], settings: Settings | None = None) -> Conversion:
    """Convert the text of a modular file that is, or would be, at `path`; nothing is written.

    Args:
        source: the text of the modular file.
        path: its place, `…/models/<model>/modular_<model>.py`; neighbours are found from there.
        settings: those of the nearest `pyproject.toml`, when left out.

    Returns:
        The generated texts by path, with the findings. There are no texts when a finding is an error.
    """
    absolute = os.path.abspath(path)
    settings = settings or load_settings(os.path.dirname(absolute))
    try:
        text = given_text(absolute, source, settings)
    except ConversionError as error:
        return Conversion(absolute, {}, error.findings)
    return Run(settings, {absolute: text}, workers=1).convert([absolute])[0]


def convert_file(path: str | os.PathLike[str], settings: Settings | None = None) -> Conversion:
    """Convert one modular file; nothing is written. See `convert_source`."""
    return convert_paths([path], settings)[0]


def convert_paths(
    paths: Iterable[str | os.PathLike[str]],
    settings: Settings | None = None,
    *,
    workers: int = 0,
    progress: Progress | None = None,
) -> list[Conversion]:
    """Convert modular files; nothing is written.

    Files that depend on each other are converted in order, and each reads the texts that this run generates for the
    others.

    Args:
        paths: modular files, in any order.
        settings: for each file those of the nearest `pyproject.toml`, when left out.
        workers: processes at most; 0 chooses by the number of files.
        progress: called with the number of files converted since the last call.

    Returns:
        One result for each file, sorted by path.
    """
    absolute = sorted({os.path.abspath(path) for path in paths})
    if not absolute:
        return []
    run = Run(settings or load_settings_of(absolute), workers=workers)
    return (replace(run, progress=progress) if progress else run).convert(absolute)
