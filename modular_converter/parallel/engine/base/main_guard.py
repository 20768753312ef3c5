"""Refuse to start ranks in processes that cannot start them, such as a spawned process that imports the main module."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterator

from modular_converter.parallel.errors import RankError


# The exit code of a process that ended because the main module has no guard.
MISSING_GUARD = 77
GUARD_TEXT = (
    "parallelize starts processes that import your main module, and the import would call parallelize again: put the "
    'call under `if __name__ == "__main__":`, with the code that it needs'
)


def refuse_import_in_child() -> None:
    """End this process if it is a spawned process that is still importing the main module."""
    if getattr(multiprocessing.process.current_process(), "_inheriting", False):
        print(GUARD_TEXT, file=sys.stderr, flush=True)
        os._exit(MISSING_GUARD)


def refuse_daemon() -> None:
    """Raise ``RankError`` in a daemonic process, which may not start others."""
    if multiprocessing.current_process().daemon:
        raise RankError(
            "this is a daemonic process (of a multiprocessing pool or a task queue), which may not start others; "
            "call parallelize in a process that is not daemonic"
        )


@contextlib.contextmanager
def main_without_missing_file() -> Iterator[None]:
    """Hide a main module from the ranks if it was read from standard input: they cannot import it again."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if main is None or path is None or os.path.exists(path) or getattr(main, "__spec__", None) is not None:
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path
