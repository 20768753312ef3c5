"""The work of `modular-convert suggest`: read the model and the library, compare, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click

from modular_converter.authoring.arguments import choose_models
from modular_converter.authoring.flat_model import FlatModel, read_flat_model
from modular_converter.authoring.library_index import read_index
from modular_converter.authoring.suggest import Suggestion, snippet, suggest
from modular_converter.commands.output import progress, report
from modular_converter.convert.batch import without_collector
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError


MOST_MODELS = 5
"""Models that the text names as the only parent."""


@without_collector()
def run(model: str, package: str | None, root: str | None, output_format: str) -> int:
    """Print the suggestions for one argument, which may stand for several models, and return the exit code."""
    try:
        chosen = choose_models(() if model == "-" else (model,), package, root)
        library = Library(chosen.settings)
        if model == "-":
            flats: list[FlatModel] = [snippet(sys.stdin.read(), chosen.models, library)]
        else:
            flats = [read_flat_model(folder, name, library) for folder, name in chosen.named]
        with progress("reading the library"):
            index = read_index(chosen.models, library)
    except ConversionError as error:
        report(error.findings)
        return 2
    found = [suggest(flat, index, library) for flat in flats]
    if output_format == "json":
        models = list(map(_values, found))
        click.echo(json.dumps({"schema": "modular-converter/suggest", "version": 1, "models": models}, indent=2))
    else:
        click.echo("\n".join(line for one in found for line in _lines(one)))
    return 0 if any(one.chosen for one in found) else 1


def _values(one: Suggestion) -> dict[str, object]:
    classes = []
    for name in one.classes:
        placed = one.chosen.get(name)
        entry: dict[str, object] = {"name": name, "lines": one.lines(name)}
        if placed:
            entry |= {
                "parent": f"{placed.source.dotted}.{placed.original}",
                "lines_left": placed.heir.text.count("\n"),
                "differences": list(placed.heir.notes),
            }
        classes.append(entry)
    return {"model": one.flat.model, "lines_saved_by_one_model": dict(one.saved), "classes": classes}


def _lines(one: Suggestion) -> Iterator[str]:
    if not one.chosen:
        yield f"{one.flat.model}: no class of another model would save lines"
        return
    alone = ", ".join(f"{model} ({lines:,})" for model, lines in list(one.saved.items())[:MOST_MODELS])
    yield f"{one.flat.model}: lines saved by one model alone: {alone}"
    width = max(map(len, one.classes))
    for name in one.classes:
        placed = one.chosen.get(name)
        if placed is None:
            yield f"  {name:{width}} {one.lines(name):>5}         no parent saves lines"
            continue
        notes = ", ".join(placed.heir.notes) or "the same"
        left = placed.heir.text.count("\n")
        yield f"  {name:{width}} {one.lines(name):>5} -> {left:<4} {placed.original} of {placed.source.model}: {notes}"
