"""The command line of `modular-convert where`. Only click is imported to print the help."""

from __future__ import annotations

import click

from modular_converter.commands.entry_point import run_command
from modular_converter.commands.options import CONTEXT_SETTINGS, version_option


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("places", nargs=-1, required=True, metavar="FILE:LINE...")
@click.option("--format", "output_format", type=click.Choice(("text", "json")), default="text", help="The answer.")
@version_option("modular-convert where")
def where_command(places: tuple[str, ...], output_format: str) -> None:
    """Tell where lines of generated files come from, and where lines of modular files end up.

    A line of a generated file comes from the modular file or from a neighbour; where the neighbour is generated too,
    the answer goes on to the files that people have written. A line of a modular file may end up in several generated
    files, its heirs' among them, or in none: imports and `super()` calls, for example, stand for other lines.

    \b
    Exit code: 0 success; 1 a generated file is not what its modular file gives; 2 something could not be read.
    """
    from modular_converter.commands.run_where import run

    raise SystemExit(run(places, output_format))


def main(arguments: list[str] | None = None) -> None:
    """Run `modular-convert where`."""
    run_command(where_command, arguments, "modular-convert where")
