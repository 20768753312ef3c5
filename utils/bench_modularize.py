"""Measure how well flat models become modular files: `python utils/bench_modularize.py`.

The set `people` are the models with a modular file that somebody wrote: they are modularized from their generated files
alone, and the result is compared with that file. The set `flat` are the models without one. Each result is a line of
JSON in `--results`, so that a run continues where another has ended; `--write` puts the tables into docs/modularize.md
and docs/modularized.md. Seconds are those of the processor, with those of the formatter's processes.
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
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import libcst
from marked_pages import write_part

from modular_converter.authoring.attempt import Proof
from modular_converter.authoring.flat_model import FlatModel, read_flat_model
from modular_converter.authoring.library_index import LibraryIndex, read_index
from modular_converter.authoring.modularize import modularize, without_unused, written_out
from modular_converter.authoring.sources import suggest
from modular_converter.commands.run_authoring import parents_of
from modular_converter.convert.source.library import Library
from modular_converter.files.read import find_package
from modular_converter.model.index import index_module
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import models_among


DOCS = Path(__file__).parents[1] / "docs"
SETS = ("people", "flat")


def main() -> None:
    """Run both sets or a sample of them, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=(*SETS, "both"), default="both")
    parser.add_argument("--sample", type=int, default=0, help="the number of models of each set; 0 takes all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further model after so long")
    parser.add_argument("--results", type=Path, default=Path("bench_modularize.jsonl"))
    parser.add_argument("--package", default="transformers")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        results = _read(options.results)
        for part, text in tables(results, options.package).items():
            write_part(DOCS / "modularize.md", part, text)
        page = DOCS / "modularized.md"
        write_part(page, "models", table_of_models(results, page.read_text(encoding="utf-8")))
        return
    folder = find_package(options.package, os.getcwd())
    assert folder is not None
    models = os.path.join(folder, "models")
    library = Library(load_settings(models))
    known = {(one["set"], one["model"]): one for one in _read(options.results)}
    end = time.monotonic() + options.minutes * 60
    if ("speed", "") not in known:
        _keep(options.results, _speed(models))
    index = read_index(models, library)
    for chosen in SETS if options.set == "both" else (options.set,):
        names = list(models_of_set(models, chosen, library))
        random.Random(options.seed).shuffle(names)
        for models_folder, model in names[: options.sample or None]:
            if time.monotonic() > end:
                return
            result = known.get((chosen, model))
            if result is None:
                result = _measure(models_folder, model, chosen, index, library)
                _keep(options.results, result)
            if chosen == "flat":  # no later one may inherit from it in a circle
                sources = frozenset(os.path.join(models, one) for one in result["sources"])
                index = index.with_modular(os.path.join(models_folder, f"modular_{model}.py"), sources)


def _keep(path: Path, result: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(result, flush=True)


def _speed(models: str) -> dict[str, Any]:
    """The seconds of the index and of one suggestion, and those that libcst needs to parse the library's modular files."""
    library = Library(load_settings(models))
    flat = read_flat_model(os.path.join(models, "phi"), "phi", library)
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(models).glob("*/modular_*.py"))]
    found: dict[str, Any] = {"set": "speed", "model": ""}
    found["cold"] = _seconds(lambda: read_index(models, Library(library.settings), cached=False))
    read_index(models, library)
    found["warm"] = _seconds(lambda: read_index(models, Library(library.settings)))
    index = read_index(models, library)
    found["suggest"] = _seconds(lambda: suggest(flat, index, library)) + found["warm"]
    found["definitions"] = len(index.entries)
    found["libcst"] = _seconds(lambda: [libcst.parse_module(text) for text in texts])
    found["files"] = len(texts)
    return found


def _seconds(work: Callable[[], object]) -> float:
    started = _processor()
    work()
    return round(_processor() - started, 2)


def _processor() -> float:
    """The processor time of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def models_of_set(models: str, chosen: str, library: Library) -> Iterator[tuple[str, str]]:
    """Folder and name of the models of a set."""
    for entry in sorted(os.scandir(models), key=lambda one: one.name):
        if entry.is_dir() and entry.name not in library.settings.no_models:
            modular = {name[8:-3] for name in os.listdir(entry.path) if name.startswith("modular_")}
            if chosen == "people":
                yield from ((entry.path, model) for model in sorted(modular))
            elif not modular:
                yield from ((entry.path, model) for model in models_among(os.listdir(entry.path), library.settings))


def _measure(folder: str, model: str, chosen: str, index: LibraryIndex, library: Library) -> dict[str, Any]:
    """The result of one model."""
    started = _processor()
    flat = read_flat_model(folder, model, library)
    result = modularize(flat, index, library)
    seconds = round(_processor() - started, 1)
    proof = result.proof
    default = library.settings.default_kind
    modeling = [one for one in flat.files if one.kind == default]
    back = sum(one.text.count("\n") for one in modeling if one.path not in result.left)
    human = Path(flat.modular)
    return {
        "set": chosen,
        "model": model,
        "flat": flat.lines,
        "covered": sum(one.text.count("\n") for one in flat.files if one.path not in result.left),
        "modular": proof.lines if proof else 0,
        "modeling": sum(one.text.count("\n") for one in modeling),
        "modeling_saved": back - _lines_of_kind(proof, default) if proof and back else 0,
        "human": human.read_text(encoding="utf-8").count("\n") if human.exists() else 0,
        "left": {os.path.basename(path): reason for path, reason in result.left.items()},
        "alone": sorted(os.path.basename(path) for path in result.left if _comes_back_alone(flat, path, library)),
        "unused": sorted(os.path.basename(path) for path in result.left if _lacks_nothing_used(flat, path, library)),
        "rewritten": {os.path.basename(path): one for path, one in (proof.rewritten if proof else {}).items()},
        "parents": parents_of(proof) if proof else {},
        "sources": sorted(os.path.relpath(one, flat.models_folder) for one in proof.conversion.requires)
        if proof
        else [],
        "seconds": seconds,
    }


def _comes_back_alone(flat: FlatModel, path: str, library: Library) -> bool:
    """Whether a file comes back when it is the only one of its model and all of it is written out."""
    return written_out(flat.without([one.path for one in flat.files if one.path != path]), library).round_trips


def _lacks_nothing_used(flat: FlatModel, path: str, library: Library) -> bool:
    """Whether a file would come back alone without definitions that nothing uses, and not with them."""
    rest, gone = without_unused(flat.without([one.path for one in flat.files if one.path != path]), library)
    return bool(gone) and written_out(rest, library).round_trips


def _lines_of_kind(proof: Proof, kind: str) -> int:
    """The lines of a modular file without the definitions of other kinds of file: the head counts as this kind's."""
    definitions = proof.draft.flat.definitions
    own = index_module(proof.text, proof.draft.flat.modular).definitions
    others = (one for name, one in own.items() if name in definitions and definitions[name][0].kind != kind)
    return proof.lines - sum((one.lead + one.text).count("\n") + 1 for one in others)


def tables(results: Sequence[dict[str, Any]], package: str) -> dict[str, str]:
    """The tables of the sets that have results, and that of the seconds, each with what it was measured on."""
    people = [one for one in results if one["set"] == "people"]
    flat = [one for one in results if one["set"] == "flat"]
    found = {"people": _table_of_people(people)} if people else {}
    if flat:
        found["flat"] = _table_of_flat(flat)
    seconds = [one["seconds"] for one in people + flat]
    for speed in (one for one in results if one["set"] == "speed" and seconds):
        found["seconds"] = [
            "| seconds of one core | |",
            "| --- | --- |",
            f"| index of {speed['definitions']:,} definitions, nothing cached | {speed['cold']:.1f} |",
            f"| the same from the cache | {speed['warm']:.1f} |",
            f"| `suggest phi`, with the cached index | {speed['suggest']:.1f} |",
            f"| {len(seconds)} models, one after the other | {sum(seconds):,.0f} |",
            f"| one model | median {statistics.median(seconds):.1f}, most {max(seconds):.1f} |",
            f"| yardstick: libcst parses {speed['files']} modular files | {speed['libcst']:.1f} |",
        ]
    today = datetime.date.today().isoformat()
    stamp = f"{package} {version(package)}, Python {platform.python_version()}, {today}."
    return {part: "\n".join((*lines, "", stamp)) for part, lines in found.items()}


def _table_of_people(people: Sequence[dict[str, Any]]) -> list[str]:
    whole = [one for one in people if not one["left"] and one["modular"]]
    rewritten = [one for one in whole if one["rewritten"]]
    shorter = sum(one["modular"] <= one["human"] for one in whole)
    return [
        "| models with a modular file by people | |",
        "| --- | --- |",
        f"| models tried | {len(people)} |",
        f"| all files come back byte for byte | {len(whole) - len(rewritten)} |",
        f"| all files come back, some in another order or layout | {len(rewritten)} |",
        f"| some files stay | {sum(bool(one['left'] and one['modular']) for one in people)} |",
        f"| no file comes back | {sum(not one['modular'] for one in people)} |",
        f"| of the models that come back: lines of the flat files | {_total(whole, 'flat'):,} |",
        f"| lines of the modular files by people | {_total(whole, 'human'):,} |",
        f"| lines of the modular files by the command | {_total(whole, 'modular'):,} |",
        f"| models with no more lines than by people | {shorter} ({100 * shorter / max(1, len(whole)):.0f} %) |",
    ]


def _table_of_flat(flat: Sequence[dict[str, Any]]) -> list[str]:
    covered = _total(flat, "covered")
    saved = covered - _total(flat, "modular")
    unlike = _count(flat, "left") - _count(flat, "alone")
    modeling, in_modeling = _total(flat, "modeling"), _total(flat, "modeling_saved")
    return [
        "| models without a modular file | |",
        "| --- | --- |",
        f"| models tried | {len(flat)} |",
        f"| all files come back | {sum(not one['left'] for one in flat)} |",
        f"| some files stay | {sum(bool(one['left'] and one['modular']) for one in flat)} |",
        f"| no file comes back | {sum(not one['modular'] for one in flat)} |",
        f"| files that stay | {_count(flat, 'left')} |",
        f"| of these, files that no conversion gives, even alone and written out | {unlike} |",
        f"| of these, files that come back alone with `--allow unused` | {_count(flat, 'unused')} |",
        f"| lines of all their files | {_total(flat, 'flat'):,} |",
        f"| lines of the files that come back | {covered:,} |",
        f"| lines saved in these | {saved:,} ({100 * saved / max(1, covered):.0f} %) |",
        f"| lines of all their modeling files | {modeling:,} |",
        f"| saved in all files, by these lines | {100 * saved / max(1, modeling):.0f} % |",
        f"| lines saved in modeling files | {in_modeling:,} ({100 * in_modeling / max(1, modeling):.0f} %) |",
    ]


def table_of_models(results: Sequence[dict[str, Any]], page: str) -> str:
    """One line for each model: its lines, its parents, and what stays. Models without a result keep their line."""
    lines = {
        line.split(" | ")[0][2:]: line for line in page.splitlines() if line.startswith("| ") and line.count("|") == 7
    }
    for one in (one for one in results if one["set"] in SETS):
        parents = ", ".join(f"{name} ({count})" for name, count in one["parents"].items())
        stays = "; ".join(f"`{name}`" for name in (*one["left"], *one["rewritten"]))
        human = one["human"] or ""
        cells = (one["model"], one["flat"], human, one["modular"] or "", parents, stays)
        lines[one["model"]] = f"| {' | '.join(map(str, cells))} |"
    head = ["| model | lines of its files | by people | by the command | classes from | stays |"]
    head += ["| --- | --- | --- | --- | --- | --- |"]
    return "\n".join((*head, *(lines[name] for name in sorted(lines) if name not in ("model", "---"))))


def _count(results: Sequence[dict[str, Any]], key: str) -> int:
    return sum(len(one[key]) for one in results)


def _total(results: Sequence[dict[str, Any]], key: str) -> int:
    return sum(int(one[key]) for one in results)


if __name__ == "__main__":
    main()
