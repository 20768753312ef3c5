"""Values that were computed once, kept on disk by name with what was logged meanwhile. It imports no slow library."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TypeVar

from modular_converter.check.cache.store import cache_folder, keep_values, read_values


T = TypeVar("T")
PACKAGE = "modular_converter"


def kept_value(
    folder: str,
    name: str,
    compute: Callable[[], T],
    keeps: Callable[[T], bool] = bool,
    holds: Callable[[T], bool] = lambda value: True,
) -> T:
    """The value that is kept, else the computed one, which is kept.

    What was logged meanwhile is logged again. An entry that is damaged, or that another user may have written, counts as
    absent.

    Args:
        folder: of the cache; the oldest of many values in it are removed.
        name: a hash of what the value depends on.
        compute: gives values that JSON has: text, numbers and lists.
        keeps: whether a value is worth keeping.
        holds: whether a value that was kept is still true.
    """
    place = os.path.join(cache_folder(), folder)
    found = read_values(place, name)
    if found.keys() != {"value", "logged"} or not holds(found["value"]):
        with _Logged() as logged:
            value = compute()
        if keeps(value):
            keep_values(place, name, {"value": value, "logged": logged.records})
        return value
    for source, level, text in found["logged"]:
        logging.getLogger(source).log(level, "%s", text)
    kept: T = found["value"]
    return kept


class _Logged(logging.Handler):
    """Notes what this package logs inside of the context, also below the level that is shown, and passes on what is shown."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[tuple[str, int, str]] = []
        self._logger = logging.getLogger(PACKAGE)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.name, record.levelno, record.getMessage()))
        handlers, _, propagate, shown = self._before
        if record.levelno < shown:
            return
        for handler in handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
        if propagate and self._logger.parent:
            self._logger.parent.callHandlers(record)

    def __enter__(self) -> _Logged:
        own = self._logger
        self._before = own.handlers, own.level, own.propagate, own.getEffectiveLevel()
        own.handlers, own.propagate = [self], False
        own.setLevel(min(logging.INFO, own.getEffectiveLevel()))
        return self

    def __exit__(self, *exception: object) -> None:
        own = self._logger
        own.handlers, level, own.propagate, _ = self._before
        own.setLevel(level)
