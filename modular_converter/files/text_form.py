"""The form of a text file on disk: its byte order mark and line ends, which readers take away."""

from __future__ import annotations


def in_form_of(path: str, text: str) -> str:
    """A text with the byte order mark and the line ends that the file at `path` has. Raises `OSError`."""
    with open(path, encoding="utf-8", newline="") as file:
        old = file.read()
    text = text.replace("\n", "\r\n") if "\r\n" in old else text
    return "\ufeff" + text if old.startswith("\ufeff") else text
