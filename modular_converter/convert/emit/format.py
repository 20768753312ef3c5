"""Format the generated files of a run together, as the project formats its own files."""

from __future__ import annotations

import os
from collections.abc import Mapping

from modular_converter.convert.emit.format_ruff import undefined_names
from modular_converter.convert.emit.formatters import Formatted, UndefinedName, load_formatter, wrong_version
from modular_converter.findings import UNPARSABLE, ConversionError, Finding, Location, locate_parse_error
from modular_converter.model.nodes import parse
from modular_converter.rules import tool_errors
from modular_converter.rules.input_files import in_the_path
from modular_converter.settings.values import Settings


def format_files(files: Mapping[str, str], settings: Settings) -> Formatted:
    """Format texts, keyed by the path that each will have: absolute, or relative to the current directory.

    A text that the formatter rejects is reported in the result and stops no other. Raises `ConversionError` when the
    formatter is missing or fails as a whole (MC115), or has another version than the settings name (MC118).
    """
    if files and (wrong := wrong_version(settings)):
        raise ConversionError(wrong)
    failures = {name: in_the_path(Location(name)) for name, text in files.items() if not _is_writable(text)}
    result = _format({name: text for name, text in files.items() if name not in failures}, settings)
    return Formatted({**files, **result.texts}, result.undefined, {**failures, **result.failures})


class FormatMemory:
    """Formats each text once, for conversions that give many files in the same words as one before."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[str, tuple[UndefinedName, ...] | None, Finding | None]] = {}

    def format(self, files: Mapping[str, str], settings: Settings) -> Formatted:
        """`format_files`; the settings are those of the text's first time."""
        new = {name: text for name, text in files.items() if (name, text) not in self._known}
        result = format_files(new, settings)
        for name, text in new.items():
            self._known[name, text] = (
                result.texts[name],
                (result.undefined or {}).get(name),
                result.failures.get(name),
            )
        known = {name: self._known[name, text] for name, text in files.items()}
        return Formatted(
            {name: text for name, (text, _, _) in known.items()},
            {name: undefined for name, (_, undefined, _) in known.items() if undefined is not None},
            {name: failure for name, (_, _, failure) in known.items() if failure is not None},
        )


def _format(files: Mapping[str, str], settings: Settings) -> Formatted:
    """Format texts, and report those that the formatter rejects."""
    if not files:
        return Formatted({}, {}, {})
    formatted = load_formatter(settings.formatter).run(files, settings)
    undefined, texts, rejected = formatted.undefined, dict(formatted.texts), dict(formatted.failures)
    for tool in settings.post_format:
        after = load_formatter(tool.formatter).run(
            {n: text for n, text in texts.items() if n not in rejected}, settings
        )
        texts |= after.texts
        rejected |= after.failures
        undefined = None if undefined else undefined  # its lines have moved
    if undefined is None:
        undefined = undefined_names(texts, settings)
    failures = {name: _unreadable(name, files[name]) or error for name, error in rejected.items()}
    texts = {name: files[name] if name in failures else text for name, text in texts.items()}
    return Formatted(texts, {name: found for name, found in undefined.items() if name not in failures}, failures)


def _is_writable(text: str) -> bool:
    """Whether a text can be encoded in UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(name: str, text: str) -> Finding | None:
    """The error for a text that is not valid Python; None for others."""
    try:
        parse(text)
    except UNPARSABLE as error:
        place, reason = locate_parse_error(name, error)
        return tool_errors.invalid_result(place, reason, os.path.basename(name)).with_source(text)
    return None
