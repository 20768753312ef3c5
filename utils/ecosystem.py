"""Modularize other people's libraries: `python utils/ecosystem.py --cache ~/wheels`.

Downloads pinned releases by name, writes a modular file for each model that has one, converts all of them, and proves the
result without the converter: each generated file compiles, and each of its definitions has the syntax tree that it had
before. Then the check of the converted tree must find nothing. Nothing of a library is ever imported.

`utils/ecosystem.json` holds a hash of each modular and generated file; a run tells which of them are others than in the
last one. `--update` writes it anew, and the table of docs/modularize.md. The exit code is 1 where a definition differs, a
file does not compile, or the check finds an error.
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
import zipfile
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
KNOWN = ROOT / "utils" / "ecosystem.json"
PAGE = ROOT / "docs" / "modularize.md"
MOST_BYTES = 20_000_000


class OtherLibrary(NamedTuple):
    """A library on the package index whose models are files of their own."""

    name: str
    wheels: tuple[str, ...]
    """The requirements, each with its version."""
    settings: Mapping[str, str]


LIBRARIES = (
    OtherLibrary(
        "flash-linear-attention",
        ("flash-linear-attention==0.6.0", "fla-core==0.6.0"),
        {"package": "fla", "root": "fla/models", "formatter": "none"},
    ),
)


class Outcome(NamedTuple):
    """What became of a library."""

    models: int
    lines: int
    """Lines of the files of all models."""
    back: Mapping[str, tuple[int, int]]
    """Kind of file -> the files that are generated now, and all files."""
    flat_lines: int
    """Lines of the files that are generated now, before."""
    modular_lines: int
    hashes: Mapping[str, str]
    """File -> the hash of its text."""
    wrong: tuple[str, ...]
    """What is not as it was, in words."""


def main() -> int:
    """Run all libraries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True, type=Path, metavar="FOLDER", help="where wheels are kept")
    parser.add_argument("--update", action="store_true", help="write the hashes and the table")
    options = parser.parse_args()
    known = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {}
    outcomes = {}
    for library in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder:
            outcomes[library.name] = outcome = modularize(library, Path(folder), options.cache)
        _report(library.name, outcome, known.get(library.name, {}))
    if options.update:
        hashes = {name: one.hashes for name, one in outcomes.items()}
        KNOWN.write_text(json.dumps(hashes, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        write_part(PAGE, "ecosystem", table(outcomes))
    return int(any(one.wrong for one in outcomes.values()))


def modularize(library: OtherLibrary, folder: Path, cache: Path) -> Outcome:
    """Modularize the models of a library in a folder, convert them back, and compare."""
    for wheel in library.wheels:
        _unpack(downloaded(wheel, cache), folder)
    rows = "".join(f'{key} = "{value}"\n' for key, value in library.settings.items())
    (folder / "pyproject.toml").write_text(f"[tool.modular-converter]\n{rows}", encoding="utf-8")
    models = folder / library.settings["root"]
    before = {path: path.read_text(encoding="utf-8") for path in sorted(models.glob("*/*.py")) if "_" in path.stem}
    undefined = _undefined_names(models)
    _run(folder, "modular-convert", "modularize", "all")
    converted = _run(folder, "modular-convert", "all")
    checked = _run(folder, "check-modular-conversion")
    wrong = [f"{name} ended with {done.returncode}: {done.stderr[-500:]}" for name, done in converted + checked]
    wrong += [f"undefined: {one}" for one in _undefined_names(models) - undefined]
    modular = sorted(models.glob("*/modular_*.py"))
    generated = [path for path in before if path.read_text(encoding="utf-8") != before[path]]
    for path in generated:
        wrong += _differences(path.name, before[path], path.read_text(encoding="utf-8"))
    back = {
        kind: (sum(path.name.startswith(f"{kind}_") for path in generated), len(all_of_kind))
        for kind in ("modeling", "configuration")
        if (all_of_kind := [path for path in before if path.name.startswith(f"{kind}_") and path.parent != models])
    }
    files = [*modular, *generated]
    return Outcome(
        models=len({path.parent for path in before if path.name.startswith("modeling_")}),
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


def _undefined_names(models: Path) -> set[str]:
    """The names that the files of models use and do not define, each with its file, as the linter of ruff sees them."""
    ask = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        "F821",
        "--output-format",
        "json",
    ]
    done = subprocess.run([*ask, str(models)], capture_output=True, text=True)
    return {f"{Path(one['filename']).name}: {one['message']}" for one in json.loads(done.stdout)}


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


def downloaded(wheel: str, cache: Path) -> Path:
    """The wheel of a requirement, downloaded where that was not done before."""
    name, _, version = wheel.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not any(cache.glob(pattern)):
        ask = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        if subprocess.run([*ask, "--dest", str(cache), wheel]).returncode:
            sys.exit(f"{wheel} cannot be downloaded: name a release that the package index has")
    return next(cache.glob(pattern))


def _unpack(wheel: Path, folder: Path) -> None:
    """The Python sources of a wheel, each a plain file within the folder."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = entry.filename.split("/")
            if not entry.filename.endswith(".py") or entry.file_size > MOST_BYTES:
                continue
            if any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts):
                sys.exit(f"{wheel}: unsafe name {entry.filename!r}")
            path = folder.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(entry))


def _report(name: str, outcome: Outcome, known: Mapping[str, Any]) -> None:
    print(f"{name}: {row(name, outcome)}")
    for one in outcome.wrong:
        print(f"  WRONG {one}")
    others = {path for path, value in outcome.hashes.items() if known.get(path, value) != value}
    changes = {
        "changed": others,
        "gone": known.keys() - outcome.hashes.keys(),
        "new": outcome.hashes.keys() - known.keys(),
    }
    for word, paths in changes.items():
        print(f"  {len(paths)} {word} since the last run", *sorted(paths))


def row(name: str, one: Outcome) -> str:
    """A row of the table."""
    back = " | ".join(f"{some} of {every}" for some, every in one.back.values())
    saved = 1 - one.modular_lines / one.flat_lines if one.flat_lines else 0
    version = next(library.wheels[0].partition("==")[2] for library in LIBRARIES if library.name == name)
    return f"| {name} {version} | {one.models} | {back} | {one.flat_lines:,} of {one.lines:,} | {one.modular_lines:,} | {saved:.0%} |"


def table(outcomes: Mapping[str, Outcome]) -> str:
    """The table of docs/modularize.md."""
    return "\n".join(
        (
            f"Made by `python utils/ecosystem.py --cache FOLDER --update` on {date.today():%d %B %Y}.\n",
            "| library | models | modeling files | configurations | their lines | modular lines | saved |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
            *(row(name, one) for name, one in outcomes.items()),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
