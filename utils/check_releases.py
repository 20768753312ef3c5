"""Convert the modular files of published releases: `python utils/check_releases.py 5.22.2 5.23.0 --cache ~/releases`.

Downloads the wheels of `transformers` by name, unpacks the sources, converts every modular file of each and compares
with the generated files that ship beside it. Says for each file that differs why, and exits with 1 where nothing
explains it. `--update` puts the table into docs/corpus.md.

A difference is explained by a proof that is computed here, or by an entry of `utils/release_differences.toml`:

* *refused*: the modular file is wrong, as the finding says.
* *formatting*: both texts are equal once both are formatted by this ruff.
* *no source*: a published line is in none of the files that it could come from: the modular file, its neighbours, and
  theirs. So the published file was not generated from the sources of its release.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.convert.batch import Run  # noqa: E402
from modular_converter.convert.schedule import required_files  # noqa: E402
from modular_converter.convert.source.library import Library  # noqa: E402
from modular_converter.files.arguments import discover  # noqa: E402
from modular_converter.files.write import is_generated  # noqa: E402
from modular_converter.findings import Conversion  # noqa: E402
from modular_converter.settings.load import load_settings, parse_release  # noqa: E402
from modular_converter.settings.toml_files import read_toml  # noqa: E402
from modular_converter.settings.values import Settings  # noqa: E402


PACKAGE = "transformers"
PAGE = Path(ROOT, "docs", "corpus.md")
KNOWN = os.path.join(ROOT, "utils", "release_differences.toml")
MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class Difference:
    """A generated file of a release that differs from the conversion."""

    path: str
    reason: str
    """`refused`, `formatting`, `no source`, `convention`, or "" where nothing explains it."""
    detail: str

    @property
    def file(self) -> str:
        """The name of the file."""
        return os.path.basename(self.path)


@dataclass(frozen=True)
class Result:
    """The result of the conversion of one release."""

    version: str
    modular: int
    published: int
    differences: tuple[Difference, ...]

    @property
    def exact(self) -> int:
        """The files that are equal byte for byte."""
        return self.published - len(self.differences)


def main() -> int:
    """Check the releases that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+", help="releases of transformers, such as 5.23.0")
    parser.add_argument("--cache", required=True, metavar="FOLDER", help="where wheels and their sources are kept")
    parser.add_argument("--workers", type=int, help="processes at most, each for a release at a time")
    parser.add_argument("--update", action="store_true", help="put the table into docs/corpus.md")
    options = parser.parse_args()
    versions = sorted(options.versions, key=parse_release, reverse=True)
    models = [models_of(version, options.cache) for version in versions]
    results = []
    with ProcessPoolExecutor(options.workers) as pool:
        for result in pool.map(_as_published, versions, models):
            results.append(result)
            counts = f"{result.exact} of {result.published} exact, {result.modular} modular files"
            print(f"{result.version}: {counts}", flush=True)
            for one in result.differences:
                print(f"    {one.file}: {one.reason or 'UNEXPLAINED'}: {one.detail}")
    if options.update:
        write_part(PAGE, "releases", "\n".join(table(results)))
    return int(any(not one.reason for result in results for one in result.differences))


def _as_published(version: str, models: str) -> Result:
    return check(version, models, 1, load_settings(models))


def models_of(version: str, cache_folder: str) -> str:
    """The models folder of a release: its wheel is downloaded and unpacked where that was not done before."""
    tree = os.path.join(cache_folder, "tree", version)
    if not os.path.isdir(tree):
        wheel = os.path.join(cache_folder, f"{PACKAGE}-{version}-py3-none-any.whl")
        if not os.path.isfile(wheel):
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            if subprocess.run([*download, "--dest", cache_folder, f"{PACKAGE}=={version}"]).returncode:
                sys.exit(f"{PACKAGE} {version} cannot be downloaded: name a release that the package index has")
        unpack(wheel, tree)
    return os.path.join(tree, PACKAGE, "models")


def newest_version() -> str | None:
    """The newest release in the package index; None without an index."""
    ask = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-"]
    ask += ["--quiet", "--only-binary", ":all:", "--timeout", "10", "--retries", "0", PACKAGE]
    done = subprocess.run(ask, capture_output=True, text=True)
    return str(json.loads(done.stdout)["install"][0]["metadata"]["version"]) if done.returncode == 0 else None


def unpack(wheel: str, folder: str) -> None:
    """The Python sources of a wheel, each a plain file within the folder; nothing of them is ever imported."""
    partial = f"{folder}.partial"
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = entry.filename.split("/")
            if parts[0] != PACKAGE or not parts[-1].endswith(".py") or entry.file_size > MOST_BYTES:
                continue
            if any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts):
                raise SystemExit(f"{wheel}: unsafe name {entry.filename!r}")
            path = os.path.join(partial, *parts)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.read(entry))
    os.rename(partial, folder)


def check(version: str, models: str, workers: int, settings: Settings) -> Result:
    """Convert a release and explain each difference."""
    paths = discover([models], None).paths
    conversions = Run(settings, workers=workers).convert(paths)
    generated = {file: text for conversion in conversions for file, text in conversion.files.items()}
    published = dict(published_files(models))
    explain = Explainer(version, models, conversions, published, settings)
    differences = [
        explain(path, published.get(path, ""), generated.get(path, ""))
        for path in sorted({*published, *generated})
        if published.get(path) != generated.get(path)
    ]
    return Result(version, len(paths), len(published), tuple(differences))


def published_files(models: str) -> Iterator[tuple[str, str]]:
    """The generated files that a release ships."""
    for folder, _, names in os.walk(models):
        for name in names:
            if name.endswith(".py") and not name.startswith("modular_"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", newline="") as file:
                    text = file.read()
                if is_generated(text).startswith(f"src/{PACKAGE}/models/"):
                    yield path, text


class Explainer:
    """Finds the reason why a published file differs from the conversion of its release's sources."""

    def __init__(
        self,
        version: str,
        models: str,
        conversions: Sequence[Conversion],
        published: Mapping[str, str],
        settings: Settings,
    ) -> None:
        self.version = version
        self.library = Library(settings)
        self.published = published
        self.by_folder = {os.path.dirname(conversion.path): conversion for conversion in conversions}
        self.names = re.compile("|".join(sorted(self._model_names(models), key=len, reverse=True)), re.IGNORECASE)

    def __call__(self, path: str, published: str, ours: str) -> Difference:
        """The difference of one file, with its reason."""
        file = os.path.basename(path)
        conversion = self.by_folder.get(os.path.dirname(path))
        if conversion is None:
            return Difference(path, "no source", "its modular file is not in the release")
        errors = [finding for finding in conversion.findings if finding.is_error]
        if errors:
            return Difference(path, "refused", f"{errors[0].code}: {errors[0].message}")
        if published and ours and formatted(published) == formatted(ours):
            return Difference(path, "formatting", "equal once both are formatted")
        known = next((one for one in known_differences() if self._applies(one, file)), None)
        if known:
            return Difference(path, "convention", known["reason"])
        line = self._line_without_source(conversion.path, published, ours)
        if line:
            return Difference(path, "no source", line)
        return Difference(path, "", first_difference(published, ours))

    def _applies(self, known: Mapping[str, Any], file: str) -> bool:
        release = parse_release(self.version)
        return file in known["files"] and release < parse_release(known["before"])

    def _line_without_source(self, modular: str, published: str, ours: str) -> str:
        """A line that only the published file has and that no source has, whatever the models are called."""
        mine = set(ours.splitlines())
        written = {
            number: line
            for number, line in enumerate(published.splitlines(), start=1)
            if line not in mine and not re.match(r"from |import |#|[)\]}]|$", line.strip())
        }
        signs = {_signs(line) for line in written.values()}  # the same in lines that differ in names alone
        lines = {line for text in self._sources(modular) for line in text.splitlines() if _signs(line) in signs}
        sources = set(map(self._neutral, lines))
        for number, line in written.items():
            if self._neutral(line) not in sources:
                return f"line {number}, `{line.strip()}`, is in none of its sources"
        return ""

    def _sources(self, modular: str) -> Iterator[str]:
        """The modular file, the neighbours it names, and what those were generated from; never a generated file."""
        todo, seen = [modular], set()
        while todo:
            path = todo.pop()
            if path in seen or not self.library.exists(path):
                continue
            seen.add(path)
            if path not in self.published:
                yield self.library.text(path)
            if os.path.basename(path).startswith("modular_"):
                todo += required_files(path, self.library)
            elif os.path.dirname(path) in self.by_folder:
                todo.append(self.by_folder[os.path.dirname(path)].path)

    def _neutral(self, line: str) -> str:
        return self.names.sub("~", re.sub(r"\s", "", line)).replace("~", "")

    def _model_names(self, models: str) -> set[str]:
        folders = {entry.name for entry in os.scandir(models) if entry.is_dir() and len(entry.name) > 2}
        return {form for name in folders for form in (re.escape(name), re.escape(name.replace("_", "")))}


def _signs(line: str) -> str:
    """A line without its words and blanks."""
    return re.sub(r"[\w\s]", "", line)


@cache
def known_differences() -> list[dict[str, Any]]:
    """The known differences by conventions that a release gave up, by file."""
    entries = read_toml(KNOWN).table["difference"]
    assert isinstance(entries, list)
    return entries


def formatted(text: str) -> str:
    """A text formatted by this ruff under the profile's settings, without its own wish to stay as it is."""
    plain = re.sub(r"(?m)^[ \t]*# fmt: (?:off|on)\n", "", text)
    config = os.path.join(ROOT, "modular_converter", "settings", "profiles", "transformers.ruff.toml")
    command = [sys.executable, "-m", "ruff", "format", "--config", config, "--stdin-filename", "generated.py", "-"]
    done = subprocess.run(command, input=plain, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else plain


def first_difference(published: str, ours: str) -> str:
    """The first lines that differ."""
    if not published or not ours:
        return "generated and not published" if ours else "published and not generated"
    lines = difflib.unified_diff(published.splitlines(), ours.splitlines(), lineterm="", n=0)
    return " | ".join(line for line in lines if line[:2] not in ("--", "++", "@@"))[:160]


def row(result: Result) -> str:
    """The row of a release."""
    counts = Counter(difference.reason or "unexplained" for difference in result.differences)
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return f"| {result.version} | {result.modular} | {result.published} | {result.exact} | {why or '–'} |"


def table(results: Sequence[Result]) -> Iterator[str]:
    """The lines of the page."""
    yield f"Checked on {datetime.date.today():%d %B %Y}."
    yield ""
    yield "| release | modular files | generated files | exact | differ, and why |"
    yield "| --- | ---: | ---: | ---: | --- |"
    yield from map(row, results)
    yield ""
    yield "| file | releases | why |"
    yield "| --- | --- | --- |"
    merged: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for one in results:
        for difference in one.differences:
            merged.setdefault((difference.file, difference.reason), []).append((one.version, difference.detail))
    for (file, reason), found in sorted(merged.items()):
        versions = ", ".join(version for version, _ in found)
        detail = found[0][1].replace("|", "\\|")
        yield f"| `{file}` | {versions} | *{reason or 'unexplained'}*: {detail} |"


if __name__ == "__main__":
    sys.exit(main())
