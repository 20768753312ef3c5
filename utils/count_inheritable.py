"""Count the lines of models without a modular file that could be inherited: `python utils/count_inheritable.py`.

A line could be inherited if it stands in a part (a whole definition, a method, an attribute, a statement of `__init__`)
that one definition of another model has in the same words but for the names of models and the layout. The other model
must be no younger and no heir, as for `modular-convert modularize`; with `--younger` it may have any age. An upper bound: the lines that an heir needs, the
order of definitions and definitions that no class uses are not counted. `--write` puts the table into
docs/modularize.md; `--models` prints a line for each model.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from bench_modularize import models_of_set
from marked_pages import write_part

from modular_converter.authoring.flat_model import FlatFile, FlatModel, read_flat_model
from modular_converter.authoring.library_index import (
    Abstraction,
    LibraryIndex,
    facts_of,
    hash_of,
    places_of_parts,
    read_index,
)
from modular_converter.authoring.sources import is_old_enough, may_give
from modular_converter.convert.schedule import heirs_of
from modular_converter.convert.source.library import Library
from modular_converter.files.read import find_package
from modular_converter.model.module import Role
from modular_converter.settings.load import load_settings


PAGE = Path(__file__).parents[1] / "docs" / "modularize.md"


def main() -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="transformers")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--younger", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    folder = find_package(options.package, os.getcwd())
    assert folder is not None
    models = os.path.join(folder, "models")
    library = Library(load_settings(models))
    index = replace(read_index(models, library), any_age=options.younger)
    total: Counter[str] = Counter()
    for models_folder, model in models_of_set(models, "flat", library):
        counts = count_of_model(read_flat_model(models_folder, model, library), index, library)
        total += counts
        if options.models:
            print(model, *(f"{name}={number}" for name, number in counts.items()), flush=True)
    stamp = f"{options.package} {version(options.package)}, Python {platform.python_version()}"
    text = "\n".join((*table(total), "", f"{stamp}, {datetime.date.today().isoformat()}."))
    if options.write:
        write_part(PAGE, "inheritable", text)
    else:
        print(text)


def count_of_model(flat: FlatModel, index: LibraryIndex, library: Library) -> Counter[str]:
    """The lines of a model by what they could be; keys begin with the kind of file, or `modeling`'s with `modeling`."""
    counts: Counter[str] = Counter()
    forbidden = heirs_of(flat.modular, index.needs, library.settings)
    for file in flat.files:
        kind = "modeling" if file.kind == library.settings.default_kind else "other"
        counts[f"{kind} lines"] += file.text.count("\n")
        for lines, parts, is_whole in _definitions(file, flat, index, forbidden, library):
            counts[f"{kind} definitions"] += lines
            counts[f"{kind} parts"] += parts
            counts[f"{kind} whole"] += parts if is_whole else 0
    return counts


def _definitions(
    file: FlatFile, flat: FlatModel, index: LibraryIndex, forbidden: frozenset[str], library: Library
) -> Iterator[tuple[int, int, bool]]:
    """The lines of each definition, those that one other definition has, and whether it is all of them."""
    abstraction = Abstraction(file.module, flat.model, library.names(flat.models_folder))

    def owners(part: int) -> Iterator[int]:
        for place in index.by_part.get(part, ()):
            entry = index.entries[place]
            if may_give(entry, flat, forbidden, library) and is_old_enough(entry, file, index, ()):
                yield place

    for name, statement in file.module.definitions.items():
        lines = statement.text.count("\n") + 1
        if any(owners(facts_of(name, file.module, abstraction).whole)):
            yield lines, lines, True
            continue
        found: dict[int, set[int]] = {}
        if statement.role is Role.CLASS:
            for form, first, last in places_of_parts(statement.text, abstraction.abstract(statement.text)):
                for place in owners(hash_of(form)):
                    found.setdefault(place, set()).update(range(first, last))
        yield lines, max(map(len, found.values()), default=0), False


def table(total: Counter[str]) -> list[str]:
    """The table of all models."""
    modeling = total["modeling lines"]
    rows = {
        "lines of all modeling files": modeling,
        "of these, in definitions": total["modeling definitions"],
        "in parts that one definition of another model has": total["modeling parts"],
        "in whole definitions of this kind": total["modeling whole"],
        "in parts of this kind in all files": total["modeling parts"] + total["other parts"],
    }
    head = ["| models without a modular file | lines | of the modeling lines |", "| --- | --- | --- |"]
    return head + [
        f"| {name} | {number:,} | {100 * number / max(1, modeling):.1f} % |" for name, number in rows.items()
    ]


if __name__ == "__main__":
    main()
