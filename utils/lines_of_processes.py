"""Notes the lines of the product that run in tests and in the processes that they start, for `lines_of_tests.py`.

Python imports this file at the start of each process, from the `sitecustomize.py` that `mutate_code.py` writes into its
copies. `LINES_OF_PROCESSES` names a folder: its file `test` holds the number of the test that runs, and each process
appends to a file of its own, line for line, since ranks are killed. A process that outlives its test notes the lines of
the next one anew.
"""

from __future__ import annotations

import inspect
import mmap
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any


VARIABLE = "LINES_OF_PROCESSES"
OWN = os.path.join("modular_converter", "")


class Notes:
    """The lines that run in this process and in those forked from it, by the number of the test."""

    def __init__(self, folder: str, root: str) -> None:
        self.folder, self.root, self.own = folder, os.path.join(root, ""), os.path.join(root, OWN)
        with open(os.path.join(folder, "test"), "rb") as opened:
            self.turn = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
        self.begin()
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        """Follow this process from here on."""
        self.test, self.seen = b"", set[tuple[str, int]]()
        self.file = os.open(os.path.join(self.folder, f"{os.getpid()}.lines"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.follow()

    def follow(self) -> None:
        """Follow this thread and those to come, in place of any other function that follows them."""
        sys.settrace(self.enter)
        threading.settrace(self.enter)

    def enter(self, frame: FrameType, event: str, argument: object) -> Any:
        """Follow a function of the product; the body of a module or class is no test's own."""
        path = frame.f_code.co_filename
        if not path.startswith(self.own) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return None
        if (test := self.turn[:]) != self.test:
            self.test, self.seen = test, set()
        start = f"{int.from_bytes(test, 'little')} {path.removeprefix(self.root)}"

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if (place := (path, frame.f_lineno)) not in self.seen:
                self.seen.add(place)
                os.write(self.file, f"{start} {frame.f_lineno}\n".encode())
            return trace

        return trace


def tell_test(folder: str, number: int) -> None:
    """Let all processes know which test runs."""
    place = os.path.join(folder, "test")
    with open(place, "r+b" if number else "wb") as opened:  # the same file, which others have mapped
        opened.write(number.to_bytes(8, "little"))


def noted(folder: str) -> dict[int, dict[str, set[int]]]:
    """The lines of all processes until now: number of the test -> file -> lines."""
    found: dict[int, dict[str, set[int]]] = {}
    for file in Path(folder).glob("*.lines"):
        for number, path, line in (one.split(" ") for one in file.read_text().splitlines() if one.count(" ") == 2):
            found.setdefault(int(number), {}).setdefault(path, set()).add(int(line))
    return found


if folder := os.environ.get(VARIABLE):
    Notes(folder, str(Path(__file__).resolve().parents[1]))
