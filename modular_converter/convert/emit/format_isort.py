"""Sort imports with isort after the formatter, for projects that use it. Isort is an extra and imported only here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from modular_converter.convert.emit.formatters import Formatted, one_by_one
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import tool_errors
from modular_converter.settings.values import Settings


def run(files: Mapping[str, str], settings: Settings) -> Formatted:
    """Sort the imports of texts one by one. Raises `ConversionError` when isort is missing or its options are wrong."""
    try:
        import isort
    except ImportError:
        raise ConversionError(_missing()) from None
    config = _config(isort, settings)

    def sorted_imports(text: str) -> str:
        try:
            return str(isort.code(text, config=config))
        except isort.exceptions.FileSkipComment:  # `# isort: skip_file`
            return text

    return one_by_one("isort", files, sorted_imports)


def version() -> str:
    """The version of isort. Raises `ConversionError` when isort is missing."""
    try:
        return metadata.version("isort")
    except metadata.PackageNotFoundError:
        raise ConversionError(_missing()) from None


def _missing() -> Finding:
    return tool_errors.missing("isort", otherwise="take it out of `post-format`")


def _config(isort: Any, settings: Settings) -> Any:
    """The project's options as a `Config`, which then looks for no file of its own. A profile is one of isort's own: of
    another name isort would load a plugin.
    """
    options = json.loads(settings.isort_options)
    options |= {"directory": settings.isort_folder, "src_paths": settings.isort_source_roots, "quiet": True}
    try:
        if (profile := options.get("profile", "")) and profile not in isort.settings.profiles:
            raise ValueError(f"there is no profile {profile!r}")
        return isort.Config(**options)
    except Exception as error:  # of several kinds
        place = Location(settings.pyproject or "isort")
        raise ConversionError(
            tool_errors.formatter_failed(place, "isort", f"its options cannot be used: {error}")
        ) from None
