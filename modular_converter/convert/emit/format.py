"""Format generated files as the project formats its own: all of one run together, under their final names."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

from modular_converter.convert.emit.format_ruff import UndefinedName
from modular_converter.diagnostics import Diagnostic, Location, locate_parse_error
from modular_converter.rules import formatter_failed, not_utf8
from modular_converter.settings.values import Settings


class FormatResult(NamedTuple):
    """What became of the texts, by the names under which they were handed over."""

    texts: Mapping[str, str]
    """Every text, formatted; one that is not valid Python as it was."""
    undefined: Mapping[str, tuple[UndefinedName, ...]]
    """For each file with undefined names, these. Only ruff finds them."""
    failures: Mapping[str, Diagnostic]
    """For each file that is not valid Python, the error that says so."""


def format_files(files: Mapping[str, str], settings: Settings) -> FormatResult:
    """Format texts, keyed by the path that each will have: absolute, or relative to the current directory.

    A text that is not valid Python is reported in the result and stops no other. Raises `ConversionError` (MC115)
    when the formatter is missing or fails as a whole.
    """
    writable, failures = _split(files, _unwritable)
    result = _format(writable, settings)
    return FormatResult({**files, **result.texts}, result.undefined, {**failures, **result.failures})


def _format(files: Mapping[str, str], settings: Settings) -> FormatResult:
    if not files:
        return FormatResult({}, {}, {})
    if settings.formatter == "none":
        return FormatResult({name: _with_one_newline(text) for name, text in files.items()}, {}, {})
    if settings.formatter == "black":
        from modular_converter.convert.emit import format_black

        readable, failures = _split(files, _unreadable)
        return FormatResult({**files, **format_black.run(readable, settings)}, {}, failures)
    from modular_converter.convert.emit import format_ruff

    outcome = format_ruff.run(files, settings)
    if outcome.complaint:
        readable, failures = _split(files, _unreadable)
        if not failures:
            raise format_ruff.failure(settings, outcome.complaint)
        texts = {name: outcome.texts[name] if name in readable else files[name] for name in files}
        undefined = {name: outcome.undefined[name] for name in outcome.undefined if name in readable}
        return FormatResult(texts, undefined, failures)
    return FormatResult(outcome.texts, outcome.undefined, {})


def _with_one_newline(text: str) -> str:
    return text.rstrip("\n") + "\n"


def _split(
    files: Mapping[str, str], judge: Callable[[str, str], Diagnostic | None]
) -> tuple[dict[str, str], dict[str, Diagnostic]]:
    """The texts that pass, and for the others what is wrong with them."""
    failures = {name: found for name, text in files.items() if (found := judge(name, text))}
    return {name: text for name, text in files.items() if name not in failures}, failures


def _unwritable(name: str, text: str) -> Diagnostic | None:
    """The error for a text that has no form in UTF-8; None for others."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return not_utf8.in_the_path(Location(name))
    return None


def _unreadable(name: str, text: str) -> Diagnostic | None:
    """What Python says of a text that it does not read; None for others."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return formatter_failed.unparsable(*locate_parse_error(name, error)).with_source(text)
    return None
