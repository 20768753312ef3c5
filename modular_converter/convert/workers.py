"""Convert files one after the other, in this process or in several. Nothing is formatted here."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from modular_converter.convert.conversion import Conversion
from modular_converter.convert.pipeline import convert
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import ConversionError, Location, locate_word
from modular_converter.rules import tool_errors


FILES_PER_WORKER = {"fork": 2, "spawn": 12}
"""Fewer files than this do not justify a process: forking takes 0.03 s, spawning as long as converting three files."""

Progress = Callable[[int], None]


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector: syntax trees are many objects and hold no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def convert_all(paths: Sequence[str], library: Library, workers: int, progress: Progress) -> list[Conversion]:
    """Convert files, in their order.

    Args:
        paths: modular files whose neighbours can be read.
        library: the sources of the run; other processes get a copy.
        workers: processes at most; 0 stands for one a core.
        progress: called with the number of files converted since the last call.
    """
    worth = len(paths) // FILES_PER_WORKER[_start_method()]
    processes = min(workers or os.cpu_count() or 1, worth)
    if processes > 1:
        return _in_processes(paths, library, processes, progress)
    return _convert_each(paths, library, progress)


def _convert_each(paths: Iterable[str], library: Library, progress: Progress) -> list[Conversion]:
    conversions = []
    for path in paths:
        conversions.append(convert_safely(path, library))
        progress(1)
    return conversions


def convert_safely(path: str, library: Library) -> Conversion:
    """`pipeline.convert`; an error of the tool itself becomes a finding that carries its traceback."""
    seen = Observations()
    try:
        return convert(path, library.observing(seen))
    except Exception as error:
        finding = tool_errors.internal_error(
            _place_of(seen.class_name, path, library), error, class_name=seen.class_name
        )
        return Conversion(path, {}, (finding,), reads=seen.reads)


def _place_of(class_name: str, path: str, library: Library) -> Location:
    """Where a class of a modular file stands; the start of the file for no class."""
    try:
        return locate_word(path, class_name, library.text(path)) if class_name else Location(path)
    except ConversionError:
        return Location(path)


def _in_processes(paths: Sequence[str], library: Library, processes: int, progress: Progress) -> list[Conversion]:
    """Convert in several processes. Each share holds every n-th file, so that files of one level are spread."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed  # takes longer than converting a file

    shares = [list(paths[number :: processes * 4]) for number in range(processes * 4)]
    converted: dict[str, Conversion] = {}
    context = multiprocessing.get_context(_start_method())
    with ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(library,)) as pool:
        futures = [pool.submit(_convert_share, share) for share in shares if share]
        for future in as_completed(futures):
            share = future.result()
            converted.update({conversion.path: conversion for conversion in share})
            progress(len(share))
    return [converted[path] for path in paths]


def _start_method() -> str:
    """The way to start processes: forked if that is safe (a progress bar runs in a thread), else spawned."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


_worker_library: Library | None = None
"""In a worker process: the library of the run, with everything that the main process has read and parsed."""


def _start_worker(library: Library) -> None:
    global _worker_library
    gc.disable()
    _worker_library = library


def _convert_share(paths: Sequence[str]) -> list[Conversion]:
    assert _worker_library is not None, "the pool calls `_start_worker` first"
    return _convert_each(paths, _worker_library, lambda converted: None)
