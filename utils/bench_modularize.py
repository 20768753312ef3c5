"""How well flat models become modular files: `python utils/bench_modularize.py --set people --sample 60`.

The set `people` are the models with a modular file that somebody wrote: they are modularized from their generated files
alone, and the result is compared with that file. The set `flat` are the models without one. Each result is a line of
JSON in `--results`, so that a run can go on where another has ended; `--write` puts the table of both sets into
docs/modularize.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from marked_pages import write_part

from modular_converter.authoring.flat_model import models_in, read_flat_model
from modular_converter.authoring.library_index import LibraryIndex, read_index
from modular_converter.authoring.modularize import modularize
from modular_converter.authoring.report import parents_of
from modular_converter.convert.source.library import Library
from modular_converter.files.packages import find_package
from modular_converter.settings.load import load_settings


PAGE = Path(__file__).parents[1] / "docs/modularize.md"


def main() -> None:
    """Run a sample of a set, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=("people", "flat"), default="people")
    parser.add_argument("--sample", type=int, default=0, help="the number of models; 0 takes all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further model after so long")
    parser.add_argument("--results", type=Path, default=Path("bench_modularize.jsonl"))
    parser.add_argument("--package", default="transformers")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        write_part(PAGE, "modularize", table(_read(options.results), options.package))
        return
    folder = find_package(options.package, os.getcwd())
    assert folder is not None
    library = Library(load_settings(os.path.join(folder, "models")))
    started = time.perf_counter()
    index = read_index(os.path.join(folder, "models"), library)
    print(f"index: {time.perf_counter() - started:.1f} s, {len(index.entries):,} definitions", flush=True)
    names = list(_models(os.path.join(folder, "models"), options.set, library))
    random.Random(options.seed).shuffle(names)
    known = {(one["set"], one["model"]) for one in _read(options.results)}
    for models_folder, model in names[: options.sample or None]:
        if time.perf_counter() - started > options.minutes * 60:
            break
        if (options.set, model) in known:
            continue
        result, index = _measure(models_folder, model, options.set, index, library)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        print(result, flush=True)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _models(models: str, chosen: str, library: Library) -> Iterator[tuple[str, str]]:
    """Folder and name of the models of a set."""
    for entry in sorted(os.scandir(models), key=lambda one: one.name):
        if entry.is_dir() and entry.name not in library.settings.no_models:
            modular = {name[8:-3] for name in os.listdir(entry.path) if name.startswith("modular_")}
            if chosen == "people":
                yield from ((entry.path, model) for model in sorted(modular))
            elif not modular:
                yield from ((entry.path, model) for model in models_in(entry.path, library.settings))


def _measure(
    folder: str, model: str, chosen: str, index: LibraryIndex, library: Library
) -> tuple[dict[str, Any], LibraryIndex]:
    """The result of one model, and the index in which no later model of the flat set inherits from it in a circle."""
    started = time.process_time()
    flat = read_flat_model(folder, model, library)
    result = modularize(flat, index, library)
    proof = result.proof
    human = Path(flat.modular)
    values = {
        "set": chosen,
        "model": model,
        "flat": flat.lines,
        "covered": sum(one.text.count("\n") for one in flat.files if one.path not in result.left),
        "modular": proof.lines if proof else 0,
        "human": human.read_text(encoding="utf-8").count("\n") if human.exists() else 0,
        "left": {os.path.basename(path): reason for path, reason in result.left.items()},
        "parents": parents_of(proof) if proof else {},
        "seconds": round(time.process_time() - started, 1),
    }
    if proof is not None and chosen == "flat":
        index = index.with_modular(flat.modular, proof.sources)
    return values, index


def table(results: Sequence[dict[str, Any]], package: str) -> str:
    """The results as a table, with what they were measured on."""
    people = [one for one in results if one["set"] == "people"]
    flat = [one for one in results if one["set"] == "flat"]
    lines = ["| models with a modular file by people | |", "| --- | --- |"]
    if people:
        whole = [one for one in people if not one["left"]]
        lines += [
            f"| models tried | {len(people)} |",
            f"| all files come back byte for byte | {len(whole)} |",
            f"| some files stay | {sum(bool(one['left'] and one['modular']) for one in people)} |",
            f"| no file comes back | {sum(not one['modular'] for one in people)} |",
            f"| of the models that come back: lines of the flat files | {_total(whole, 'flat'):,} |",
            f"| lines of the modular files by people | {_total(whole, 'human'):,} |",
            f"| lines of the modular files by the command | {_total(whole, 'modular'):,} |",
            f"| models with no more lines than by people | {sum(one['modular'] <= one['human'] for one in whole)} |",
        ]
    lines += ["", "| models without a modular file | |", "| --- | --- |"]
    if flat:
        covered = _total(flat, "covered")
        saved = covered - _total(flat, "modular")
        lines += [
            f"| models tried | {len(flat)} |",
            f"| all files come back | {sum(not one['left'] for one in flat)} |",
            f"| some files stay | {sum(bool(one['left'] and one['modular']) for one in flat)} |",
            f"| no file comes back | {sum(not one['modular'] for one in flat)} |",
            f"| lines of all their files | {_total(flat, 'flat'):,} |",
            f"| lines of the files that come back | {covered:,} |",
            f"| lines saved in these | {saved:,} ({100 * saved / max(1, covered):.0f} %) |",
        ]
    seconds = [one["seconds"] for one in results]
    if seconds:
        lines += ["", f"CPU seconds of a model: median {statistics.median(seconds):.1f}, most {max(seconds):.1f}."]
    today = datetime.date.today().isoformat()
    lines += ["", f"{package} {version(package)}, Python {platform.python_version()}, {today}."]
    return "\n".join(lines)


def _total(results: Sequence[dict[str, Any]], key: str) -> int:
    return sum(int(one[key]) for one in results)


if __name__ == "__main__":
    main()
