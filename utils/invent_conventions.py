"""Invent conventions and see what the check says: `python utils/invent_conventions.py 5.24.0 --cache ~/releases`.

Unpacks a release, gives it the number of a release to come, and writes its generated files as today's conversion gives
them, so that all of them are current. Then each invented convention changes the generated files of the whole package, as
a release would that brings it, and the command line is asked for a check and for `--write`. A convention is recognised if
the check ends with 1, one finding (MC404) names it with all its files, and `--write` changes no file. No source differs
between the inventions, so the package is converted once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from check_releases import PACKAGE, models_of, published_files
from click.testing import CliRunner

from modular_converter.check import run
from modular_converter.check.conversions import Conversions
from modular_converter.commands.check import check_command


TO_COME = "999.0.0"
"""A release that no profile has been checked with."""
_METHODS = re.compile(
    r"(?m)^(    def get_input_embeddings\(self\):\n(?:        .*\n)+)\n"
    r"(    def set_input_embeddings\(self, value\):\n(?:        .*\n)+)"
)
CONVENTIONS: Mapping[str, Callable[[str], str]] = {
    "a decorator is added": lambda text: re.sub(r"(?m)^( +)@can_return_tuple$", r"\1@once\n\g<0>", text),
    "docstrings of classes are dropped": lambda text: re.sub(
        r'(?m)^(class \w+.*:\n)    """[^"\n]*"""\n\n', r"\1", text
    ),
    "docstrings end with a full stop": lambda text: re.sub(r'(?m)^( +"""[A-Z][^".\n]*)"""$', r'\1."""', text),
    "two methods have another order": lambda text: _METHODS.sub(r"\2\n\1", text),
    "imports are absolute": lambda text: text.replace("\nfrom ...utils import", "\nfrom transformers.utils import"),
    "a keyword has another name": lambda text: re.sub(r"\battention_mask=", "mask=", text),
    "a comment is dropped": lambda text: re.sub(r"(?m)^ +# Initialize weights and apply final.*\n", "", text),
    "a base class is added": lambda text: text.replace(
        "(GradientCheckpointingLayer):", "(GradientCheckpointingLayer, nn.Module):"
    ),
    "annotations have an older form": lambda text: re.sub(
        r"(?m)^( *[^#\n]*?\w+): ([\w.]+) \| None = None", r"\1: Optional[\2] = None", text
    ),
    "a call is left out": lambda text: text.replace("        self.post_init()\n", ""),
}
"""The inventions: what a release would publish in place of a text."""


class Outcome(NamedTuple):
    """What the commands say of one invention."""

    name: str
    changed: int
    exit_code: int
    said: tuple[str, ...]
    """The messages of MC404."""
    others: int
    """Further findings about files that differ."""
    written: int
    """Files that `--write` has changed."""

    @property
    def is_recognised(self) -> bool:
        """Whether one finding names all files, and nothing was written."""
        named = len(self.said) == 1 and self.said[0].startswith(f"{self.changed} of {self.changed} ")
        return named and not self.others and self.exit_code == 1 and not self.written


def main() -> int:
    """Try all inventions, and print a table; 1 where one is not recognised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="a release of transformers, such as 5.24.0")
    parser.add_argument("--cache", required=True, metavar="FOLDER", help="where wheels and their sources are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, PACKAGE)
        shutil.copytree(os.path.dirname(models_of(options.version, options.cache)), package)
        outcomes = try_all(package)
    print(f"| invention, in {options.version} | files | the finding |\n| --- | ---: | --- |")
    for one in outcomes:
        said = "; ".join(text.partition(": the conversion ")[2].partition(";")[0] for text in one.said)
        print(f"| {one.name} | {one.changed} | {said if one.is_recognised else f'NOT RECOGNISED: {one}'} |")
    return int(not all(one.is_recognised for one in outcomes))


def try_all(package: Path) -> list[Outcome]:
    """Try the inventions on a package; it is changed, and made current and newer before."""
    init = package / "__init__.py"
    text = re.sub(r"(?m)^__version__ = .*$", "", init.read_text(encoding="utf-8"))
    init.write_text(f'{text}\n__version__ = "{TO_COME}"\n', encoding="utf-8")
    done = run.check(run.CheckOptions(root=str(package), fix=True, accept_release=TO_COME))
    kept = Conversions({}, {one.path: one for one in done.conversions})
    generated = {Path(path): text for path, text in sorted(published_files(str(package / "models")))}
    with mock.patch.object(run, "find_conversions", lambda *paths, **settings: kept):
        return [_try(name, invent, package, generated) for name, invent in CONVENTIONS.items()]


def _try(name: str, invent: Callable[[str], str], package: Path, generated: Mapping[Path, str]) -> Outcome:
    changed = {path: new for path, text in generated.items() if (new := invent(text)) != text}
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8", newline="")
    try:
        code, findings = _checked(package)
        _checked(package, "--write")
        written = sum(_read(path) != changed.get(path, text) for path, text in generated.items())
    finally:
        for path in changed:
            path.write_text(generated[path], encoding="utf-8", newline="")
    said = tuple(one["message"] for one in findings if one["code"] == "MC404")
    others = sum(one["code"].startswith("MC4") for one in findings) - len(said)
    return Outcome(name, len(changed), code, said, others, written)


def _checked(package: Path, *options: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code and the findings of the command."""
    arguments = ["--root", str(package), "--format", "json", "--no-cache", *options]
    done = CliRunner().invoke(check_command, arguments, catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def _read(path: Path) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
