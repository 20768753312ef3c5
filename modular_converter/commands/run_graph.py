"""The work of `modular-convert graph`: read the modular files, render the graph, write it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from modular_converter.check.cache.answers import KeptIndexes
from modular_converter.check.cache.store import cache_folder
from modular_converter.commands.options import progress, refuse_missing_folder, report
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import models_folder
from modular_converter.files.write import write_result
from modular_converter.findings import ConversionError, Finding, exit_code
from modular_converter.graph import render
from modular_converter.graph.build import Graph, build_graph, chosen_models, modular_files
from modular_converter.settings.load import load_settings


_FORMATS = {".dot": "dot", ".gv": "dot", ".json": "json", ".html": "html", ".htm": "html"}
"""The format that the suffix of the output file stands for."""


def run(
    models: Sequence[str],
    output_format: str | None,
    output: str | None,
    sort: str,
    package: str | None,
    root: str | None,
) -> int:
    """Print or write the graph, report the files that could not be read, and return the exit code."""
    refuse_missing_folder(output, "--output")
    try:
        graph, findings = _read(models, package, root)
    except ConversionError as error:
        graph, findings = None, list(error.findings)
    if graph is not None:
        suffix = os.path.splitext(output or "")[1].lower()
        text = render(output_format or _FORMATS.get(suffix, "text"), graph, sort=sort)
        findings += _write(output or "-", text)
    report(findings)
    return exit_code(findings)


def _read(arguments: Sequence[str], package: str | None, root: str | None) -> tuple[Graph | None, list[Finding]]:
    """The graph of the models that the arguments mean, None where they mean none; and the findings."""
    folder, paths = modular_files(arguments, models_folder(package, root))
    kept = KeptIndexes(cache_folder(), folder)
    with progress("reading the modular files"):
        graph, findings = build_graph(paths, folder, Library(load_settings(folder)))
    kept.store()
    if not arguments:
        return graph, findings
    chosen, unknown = chosen_models(arguments, graph, folder)
    return (graph.around(chosen) if chosen else None), [*findings, *unknown]


def _write(path: str, text: str) -> list[Finding]:
    """Write the graph, and print the size of a file; return the finding where this fails."""
    try:
        write_result(path, text)
    except ConversionError as error:
        return list(error.findings)
    if os.path.isfile(path):
        click.echo(f"{path}: {len(text.encode('utf-8')) / 1000:,.0f} kB", err=True)
    return []
