"""What a change of ours does to other people's code: `python utils/ecosystem.py --cache ~/wheels`.

Downloads pinned releases by name (`utils/other_libraries.py`) and

* writes a modular file for each model that has one, converts all of them, and proves the result without the converter:
  each generated file compiles, and each of its definitions has the syntax tree that it had before; then the check of the
  converted tree must find nothing;
* counts the lines of models that another file of the library has in the same words, and audits its marks.

`utils/ecosystem.json` holds a hash of each modular and generated file, and the counts; a run tells which of them are others
than in the last one. `--update` writes it anew, and the tables of docs/ecosystem.md. The exit code is 1 where a definition
differs, a file does not compile, or the check finds an error.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from marked_pages import write_part
from other_libraries import LIBRARIES, OtherLibrary, undefined_names, unpack
from repeated_lines import repeated_lines, verdicts_of_marks

from modular_converter.settings.load import load_settings
from modular_converter.settings.values import FILES, is_modular, split_stem


ROOT = Path(__file__).resolve().parent.parent
KNOWN = ROOT / "utils" / "ecosystem.json"
PAGE = ROOT / "docs" / "ecosystem.md"
COLUMNS = ("models", "configurations", "lines")
"""What is counted of all files and of those that come back."""


class Outcome(NamedTuple):
    """What became of a library."""

    lines: int
    """Lines of the files of all models."""
    back: Mapping[str, tuple[int, int]]
    """"models" and "configurations" -> the files that are generated now, and all files."""
    flat_lines: int
    """Lines of the files that are generated now, before."""
    modular_lines: int
    hashes: Mapping[str, str]
    """File -> the hash of its text."""
    wrong: tuple[str, ...]
    """What is not as it was, in words."""

    @property
    def numbers(self) -> dict[str, object]:
        """What the table says."""
        back = {kind: list(numbers) for kind, numbers in self.back.items()}
        return {**back, "lines": [self.flat_lines, self.lines], "modular": self.modular_lines}


def main() -> int:
    """Run all libraries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True, type=Path, metavar="FOLDER", help="where wheels are kept")
    names = [library.name for library in LIBRARIES]
    parser.add_argument("--library", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--update", action="store_true", help="write the hashes, the counts and the tables")
    options = parser.parse_args()
    known = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {}
    is_wrong = False
    for library in LIBRARIES:
        if library.name not in (options.library or names):
            continue
        before: dict[str, Any] = known.get(library.name, {})
        now: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder:
            now["figures"] = count(library, Path(folder), options.cache)
        print(f"{library.name}: {now['figures']}; before {before.get('figures')}", flush=True)
        if library.settings:
            with tempfile.TemporaryDirectory() as folder:
                outcome = modularize(library, Path(folder), options.cache)
            _report(library.name, outcome, before.get("hashes", {}))
            now |= {"hashes": outcome.hashes, "modularized": outcome.numbers}
            is_wrong |= bool(outcome.wrong)
        known[library.name] = now
    if options.update:
        KNOWN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        write_part(PAGE, "modularized", table_of_modularized(known))
        write_part(PAGE, "repeated", table_of_figures(known))
    return int(is_wrong)


def count(library: OtherLibrary, folder: Path, cache: Path) -> dict[str, int]:
    """What a library repeats: files and lines of models, repeated lines, and marks by verdict."""
    source = folder / "source"
    unpack(library, source, cache)
    return {**repeated_lines(library, source, folder / "laid_out"), **verdicts_of_marks(library, source)}


def modularize(library: OtherLibrary, folder: Path, cache: Path, model: str = "all") -> Outcome:
    """Modularize the models of a library in a folder, or one of them, convert them back, and compare."""
    unpack(library, folder, cache)
    rows = "".join(f'{key} = "{value}"\n' for key, value in library.settings.items())
    (folder / "pyproject.toml").write_text(f"[tool.modular-converter]\n{rows}", encoding="utf-8")
    models = folder / library.settings["root"]
    settings = load_settings(models)
    paths = sorted(models.glob("*.py" if settings.layout == FILES else "*/*.py"))
    kinds = {path: split for path in paths if (split := split_stem(path.stem, settings))}
    before = {path: path.read_text(encoding="utf-8") for path in kinds}
    undefined = undefined_names(models)
    _run(folder, "modular-convert", "modularize", model)
    converted = _run(folder, "modular-convert", "all")
    checked = _run(folder, "check-modular-conversion")
    wrong = [f"{name} ended with {done.returncode}: {done.stderr[-500:]}" for name, done in converted + checked]
    wrong += [f"undefined: {one}" for one in undefined_names(models) - undefined]
    modular = sorted(path for path in models.rglob("*.py") if is_modular(str(path), settings))
    generated = [path for path in before if path.read_text(encoding="utf-8") != before[path]]
    for path in generated:
        wrong += _differences(path.name, before[path], path.read_text(encoding="utf-8"))
    number = Counter(kind for kind, _ in kinds.values())
    come_back = Counter(kinds[path][0] for path in generated)
    kinds_by_name = {"models": settings.default_kind, "configurations": settings.kinds.get(settings.config_suffix, "")}
    back = {name: (come_back[kind], number[kind]) for name, kind in kinds_by_name.items() if number[kind]}
    files = [*modular, *generated]
    return Outcome(
        lines=sum(text.count("\n") for text in before.values()),
        back=back,
        flat_lines=sum(before[path].count("\n") for path in generated),
        modular_lines=sum(path.read_text(encoding="utf-8").count("\n") for path in modular),
        hashes={path.relative_to(folder).as_posix(): _hash(path) for path in files},
        wrong=tuple(wrong),
    )


def _run(folder: Path, command: str, *arguments: str) -> list[tuple[str, subprocess.CompletedProcess[str]]]:
    """Run a command of this project; the result if it failed. `modularize` ends with 1 where files stay."""
    module = {"modular-convert": "convert", "check-modular-conversion": "check"}[command]
    code = f"from modular_converter.commands.{module} import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True)
    may_fail = arguments[:1] == ("modularize",) and done.returncode == 1
    return [(command, done)] if done.returncode and not may_fail else []


def _differences(name: str, old: str, new: str) -> Iterator[str]:
    """The definitions of a file that are others, or gone without being unused."""
    try:
        compile(new, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        yield f"{name}: {error}"
        return
    was, now = _definitions(old), _definitions(new)
    for one in now.keys() & was.keys() - {"__all__"}:
        if was[one] != now[one]:
            yield f"{name}: {one} differs"
    for one in was.keys() - now.keys():
        if re.search(rf"\b{one}\b", new):
            yield f"{name}: {one} is gone, and used"
    yield from (f"{name}: {one} is new" for one in now.keys() - was.keys() - {"__all__"})


def _definitions(text: str) -> dict[str, str]:
    """Name -> the syntax tree of each top-level class, function and assignment."""
    found = {}
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        for one in targets:
            name = getattr(one, "name", getattr(one, "id", ""))
            if name:
                found[str(name)] = ast.dump(node)
    return found


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _report(name: str, outcome: Outcome, known: Mapping[str, Any]) -> None:
    print(f"{name}: {outcome.numbers}")
    for one in outcome.wrong:
        print(f"  WRONG {one}")
    others = {path for path, value in outcome.hashes.items() if known.get(path, value) != value}
    changes = {
        "changed": others,
        "gone": known.keys() - outcome.hashes.keys(),
        "new": outcome.hashes.keys() - known.keys(),
    }
    for word, paths in changes.items():
        print(f"  {len(paths)} {word} since the last run", *(sorted(paths) if known else ()))


def table_of_modularized(known: Mapping[str, Any]) -> str:
    """The table of the libraries that were modularized."""
    rows = []
    for library in LIBRARIES:
        if one := known.get(library.name, {}).get("modularized"):
            of_all = [f"{one[key][0]:,} of {one[key][1]:,}" if key in one else "" for key in COLUMNS]
            rows.append(_row(library, (*of_all, one["modular"], f"{1 - one['modular'] / one['lines'][0]:.0%}")))
    return _table(f"library | {' | '.join(COLUMNS)} | modular lines | saved", rows)


def table_of_figures(known: Mapping[str, Any]) -> str:
    """The table of what libraries repeat."""
    rows = []
    for library in LIBRARIES:
        if one := known.get(library.name, {}).get("figures"):
            share = f"{one['repeated'] / one['lines']:.1%}"
            verdicts = (
                one.get(name, 0) for name in ("identical", "drifted", "signature alone", "dangling", "invisible")
            )
            rows.append(_row(library, (one["files"], one["lines"], one["repeated"], share, *verdicts)))
    return _table(
        "library | files | lines | repeated | share | identical | drifted | signature alone | dangling | invisible",
        rows,
    )


def _row(library: OtherLibrary, cells: Sequence[object]) -> str:
    version = library.wheels[0].partition("==")[2]
    shown = (f"{one:,}" if isinstance(one, int) else str(one) for one in cells)
    return f"| {library.name} {version} | {' | '.join(shown)} |"


def _table(head: str, rows: Sequence[str]) -> str:
    made = f"Made by `python utils/ecosystem.py --cache FOLDER --update` on {date.today():%d %B %Y}.\n"
    return "\n".join((made, f"| {head} |", "| --- |" + " ---: |" * head.count("|"), *rows))


if __name__ == "__main__":
    sys.exit(main())
