"""Convert files one after the other, in this process or in several. Nothing is formatted here."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from modular_converter.convert.conversion import Conversion
from modular_converter.convert.pipeline import convert
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import ConversionError, Location, locate_word
from modular_converter.rules import tool_errors


FILES_PER_WORKER = {"fork": 2, "spawn": 12}
"""Fewer files than this do not justify a process: forking takes 0.03 s, spawning as long as converting three files."""

Progress = Callable[[int], None]
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


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
    return in_processes(_convert_each, library, paths, workers, progress)


def in_processes(
    work: Callable[[Iterable[T], S, Progress], list[R]],
    shared: S,
    items: Sequence[T],
    workers: int,
    progress: Progress,
) -> list[R]:
    """The results for some items in their order, made in this process or in several, where there are enough items.

    Args:
        work: a function of a module: the results for a share of the items.
        shared: what it also gets; other processes get a copy.
        items: each share holds every n-th of them, so that those of one level are spread.
        workers: processes at most; 0 stands for one a core.
        progress: called with the number of items done since the last call.
    """
    worth = len(items) // FILES_PER_WORKER[_start_method()]
    processes = min(workers or os.cpu_count() or 1, worth)
    if processes <= 1:
        return work(items, shared, progress)
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed  # takes longer than converting a file

    parts = processes * 4
    found: dict[int, list[R]] = {}
    context = multiprocessing.get_context(_start_method())
    with ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(work, shared)) as pool:
        futures = {pool.submit(_work_on, items[number::parts]): number for number in range(parts)}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            progress(len(found[futures[future]]))
    return [found[number % parts][number // parts] for number in range(len(items))]


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


def _start_method() -> str:
    """The way to start processes: forked if that is safe (a progress bar runs in a thread), else spawned."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


_worker: tuple[Callable[..., list[Any]], Any] | None = None
"""In a worker process: what to do, and what it gets: the library of the run, with everything that was read before."""


def _start_worker(work: Callable[..., list[Any]], shared: object) -> None:
    global _worker
    gc.disable()
    _worker = work, shared


def _work_on(items: Sequence[Any]) -> list[Any]:
    assert _worker is not None, "the pool calls `_start_worker` first"
    work, shared = _worker
    return work(items, shared, lambda done: None)
