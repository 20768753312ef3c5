"""The command line of `modular-convert graph`. Only click is imported to print the help."""

from __future__ import annotations

import click

from modular_converter.commands.entry_point import run_command
from modular_converter.commands.options import CONTEXT_SETTINGS, package_option, root_option, version_option


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("models", nargs=-1, metavar="[MODELS]...")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "dot", "json", "html")),
    help="A table or trees, graphviz, data, or a page for a browser. "
    "The default follows from the name of the output file, else it is text.",
)
@click.option("--output", "-o", metavar="FILE", help="Write to FILE instead of the standard output (-).")
@click.option(
    "--sort",
    type=click.Choice(("heirs", "saved", "name")),
    default="heirs",
    help="The order of the table of all models.",
)
@package_option
@root_option
@version_option("modular-convert graph")
def graph_command(
    models: tuple[str, ...],
    output_format: str | None,
    output: str | None,
    sort: str,
    package: str | None,
    root: str | None,
) -> None:
    """Show which models inherit from which.

    MODELS are model names or modular files; with MODELS, only they, their ancestors and their heirs are shown.
    The modular files are only read, never imported or run.

    \b
    Exit code: 0 success; 2 something could not be read or written.
    """
    from modular_converter.commands.run_graph import run

    raise SystemExit(run(models, output_format, output, sort, package, root))


def main(arguments: list[str] | None = None) -> None:
    """Run `modular-convert graph`."""
    run_command(graph_command, arguments, "modular-convert graph")
