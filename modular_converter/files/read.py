"""Read the files of the tree that is checked: regular ones, up to a size, and none through a link out of the root."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from modular_converter.files.links import is_link, refuse_link_out
from modular_converter.settings.regular_file import NO_FOLLOW, read_head, read_regular
from modular_converter.settings.values import Settings


Content = TypeVar("Content")


def read_inside(path: str, settings: Settings) -> bytes:
    """The content of a source or generated file.

    Raises `ConversionError` (MC114) for a link that leads out of the root, `FileTooLarge` above the configured size,
    and `OSError` for a file that is missing, unreadable or not regular.
    """
    return _inside(path, settings, lambda flags: read_regular(path, settings.max_file_bytes, flags))


def read_head_inside(path: str, size: int, settings: Settings) -> bytes:
    """At most the first `size` bytes of a source or generated file. Raises as `read_inside` does."""
    return _inside(path, settings, lambda flags: read_head(path, size, flags))


def _inside(path: str, settings: Settings, read: Callable[[int], Content]) -> Content:
    """Read a file that is no link at once; one behind a link only when that link stays inside the root.

    The system itself says whether the file is a link, which saves a call for each of a thousand files.
    """
    if NO_FOLLOW and not is_link(path.rpartition(os.sep)[0]):
        try:
            return read(NO_FOLLOW)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK):
                raise
    refuse_link_out(path, settings)
    return read(0)
