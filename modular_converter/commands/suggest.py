"""The command line of `modular-convert suggest`. Only click is imported to print the help."""

from __future__ import annotations

import click

from modular_converter.commands.entry_point import run_command
from modular_converter.commands.options import CONTEXT_SETTINGS, package_option, root_option, version_option


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("model", metavar="MODEL")
@package_option
@root_option
@click.option("--format", "output_format", type=click.Choice(("text", "json")), default="text", help="The report.")
@version_option("modular-convert suggest")
def suggest_command(model: str, package: str | None, root: str | None, output_format: str) -> None:
    """Show which models a flat model could inherit from.

    MODEL is a folder of a model, a flat file, the name of a model, or - for some classes on the standard input. The
    numbers of lines are estimates; `modular-convert modularize` proves them.

    \b
    Exit code: 0 success; 1 no class has a parent that saves lines; 2 something could not be read.
    """
    from modular_converter.commands.run_suggest import run

    raise SystemExit(run(model, package, root, output_format))


def main(arguments: list[str] | None = None) -> None:
    """Run `modular-convert suggest`."""
    run_command(suggest_command, arguments, "modular-convert suggest")
