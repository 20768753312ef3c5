"""The `modular-convert graph` command. Only click is imported to print the help."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from modular_converter.commands.shared import run_command


if TYPE_CHECKING:
    from modular_converter.diagnostics import Diagnostic
    from modular_converter.graph import Graph

_FORMATS = {".dot": "dot", ".gv": "dot", ".json": "json", ".html": "html", ".htm": "html"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("models", nargs=-1, metavar="[MODELS]...")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "dot", "json", "html")),
    help="A table or tree, graphviz, data, or a page for a browser; by the name of the output if not given, else text.",
)
@click.option("--output", "-o", metavar="FILE", help="Write to this file instead of the standard output (-).")
@click.option(
    "--sort", type=click.Choice(("heirs", "saved", "name")), default="heirs", help="Order of the table of all models."
)
@click.option("--package", metavar="NAME", help="The installed package whose models are meant.")
@click.option("--root", metavar="DIR", help="The folder of models, or the package folder that holds it.")
def graph_command(
    models: tuple[str, ...],
    output_format: str | None,
    output: str | None,
    sort: str,
    package: str | None,
    root: str | None,
) -> None:
    """Show which models inherit from which.

    MODELS are model names or modular files; with some, only they, their ancestors and their heirs are shown.
    The modular files are only read, never imported or run.

    \b
    Exit code: 0 all well; 2 something could not be read or written.
    """
    from modular_converter.diagnostics import ConversionError
    from modular_converter.graph import render

    _refuse_missing_folder(output)
    try:
        graph, diagnostics = _read(models, package, root)
    except ConversionError as error:
        raise SystemExit(_report(list(error.diagnostics))) from None
    if graph is not None:
        suffix = os.path.splitext(output or "")[1].lower()
        text = render(output_format or _FORMATS.get(suffix, "text"), graph, sort=sort)
        if output in (None, "-"):
            sys.stdout.buffer.write(text.encode("utf-8"))
            sys.stdout.buffer.flush()
        else:
            diagnostics += _write(output, text)
    raise SystemExit(_report(diagnostics))


def _refuse_missing_folder(output: str | None) -> None:
    """Raise for an output in a folder that there is not: most likely it is mistyped."""
    folder = os.path.dirname(output or "")
    if folder and not os.path.isdir(folder):
        raise click.BadParameter(f"there is no folder {folder!r}; make it first.", param_hint="'--output'")


def _read(arguments: tuple[str, ...], package: str | None, root: str | None) -> tuple[Graph | None, list[Diagnostic]]:
    """The graph that the arguments mean; None when they mean nothing."""
    from modular_converter.convert.source.library import Library
    from modular_converter.files.arguments import models_folder
    from modular_converter.graph.build import build
    from modular_converter.graph.select import chosen_models, modular_files
    from modular_converter.settings.load import load_settings

    configured = load_settings(root or os.getcwd()).root
    folder, paths = modular_files(arguments, models_folder(package, root, configured))
    library = Library(load_settings(folder))
    graph, diagnostics = build(paths, folder, library)
    if not arguments:
        return graph, diagnostics
    chosen, problems = chosen_models(arguments, graph, folder)
    return (graph.around(chosen) if chosen else None), diagnostics + problems


def _write(path: str, text: str) -> list[Diagnostic]:
    from modular_converter.diagnostics import ConversionError
    from modular_converter.files.atomic_write import write_atomically

    try:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # a device or a pipe
            with open(path, "wb") as file:
                file.write(text.encode("utf-8"))
            return []
        write_atomically(path, text, os.path.dirname(os.path.abspath(path)))
    except ConversionError as error:
        return list(error.diagnostics)
    click.echo(f"{path}: {len(text.encode('utf-8')) / 1000:,.0f} kB", err=True)
    return []


def _report(diagnostics: list[Diagnostic]) -> int:
    """Print what could not be read or written to stderr; return the exit code."""
    from modular_converter.reporting import render, wants_color

    if diagnostics:
        click.echo(render("text", diagnostics, color=wants_color(sys.stderr)).rstrip("\n"), err=True)
    return 2 if diagnostics else 0


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    run_command(graph_command, arguments, "modular-convert graph")
