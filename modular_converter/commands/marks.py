"""The command line of `modular-convert marks`. Only click is imported to print the help."""

from __future__ import annotations

from typing import Any

import click

from modular_converter.commands.entry_point import run_command
from modular_converter.commands.options import (
    CONTEXT_SETTINGS,
    format_option,
    package_option,
    root_option,
    strict_option,
    version_option,
)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@package_option
@root_option
@click.option("--fix", is_flag=True, help="Write what the sources say into the copies that have drifted.")
@click.option(
    "--diff", is_flag=True, help="Print how the drifted copies differ from their sources, and write nothing."
)
@strict_option
@format_option
@version_option("modular-convert marks")
def marks_command(paths: tuple[str, ...], **options: Any) -> None:
    """Audit comments "# Copied from ...": do the copies still say what their sources say?

    PATHS are files, folders, names of models, or "all", which is the default. A mark is identical, drifted (MC411),
    dangling (MC412: its source does not exist), or invisible (MC393: it does not have the form of a mark). Marks in
    generated files are left out, since nobody edits these.

    \b
    Exit code: 0 success; 1 drifted or dangling marks are left; 2 something could not be read or written.
    """
    from modular_converter.commands.run_marks import MarksOptions, run

    raise SystemExit(run(MarksOptions(paths or ("all",), **options)))


def main(arguments: list[str] | None = None) -> None:
    """Run `modular-convert marks`."""
    run_command(marks_command, arguments, "modular-convert marks")
