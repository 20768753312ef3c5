"""The growth of the check with the tree, 10 to 5,000 models, and with one file of 50,000 lines: `python
utils/bench_scale.py`.

The models are copies of gemma from the zoo, each under a name of its own, all made from one llama. Each figure is one
process: a cold check without a cache, with one worker, and a warm one whose cache knows all. Seconds are of the
processor, children included; memory is the largest of the processes. "Growth" is the time of a model against the line
above: 1.0 is linear. `--update docs/figures/check.md` writes the table into the guide.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from marked_pages import write_part


ROOT = Path(__file__).parents[1]
ZOO = ROOT / "models"
SIZES = (10, 100, 1000, 5000)
LINES = 50_000
PART = "scale"
SETTINGS = '[tool.modular-converter]\nruff-config = "profile"\nmax-file-bytes = 100000000\n'
CODE = "from modular_converter.commands.check import main; main()"
MEASURE = """
import os, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)
"""


class Cost(NamedTuple):
    """The time and memory of one process and its children."""

    seconds: float
    megabytes: int


class Row(NamedTuple):
    """One line of the table."""

    what: str
    parts: int
    """The number by which the times are divided."""
    cold: Cost
    warm: Cost


def measure(tree: Path, *options: str) -> Cost:
    """The cost of a check that has to succeed."""
    command = [sys.executable, "-c", CODE, "--root", str(tree), "--workers", "1", "-q", *options]
    environment = {**os.environ, "MODULAR_CONVERTER_CACHE": str(tree / "cache"), "OMP_NUM_THREADS": "1"}
    measured = [sys.executable, "-c", MEASURE, *command]
    code, seconds, megabytes = subprocess.run(
        measured, capture_output=True, text=True, check=True, env=environment, cwd=tree
    ).stdout.split()
    if code != "0":
        raise SystemExit(f"the check of {tree} ended with exit code {code}")
    return Cost(float(seconds), int(megabytes))


def row(tree: Path, what: str, parts: int) -> Row:
    """Make a tree current, and measure its checks."""
    measure(tree, "--write")
    return Row(what, parts, measure(tree, "--no-cache"), measure(tree))


def cased(number: int) -> str:
    """A name without digits for a model: `Xaa`, `Xab`, …"""
    letters = ""
    for _ in range(3):
        number, rest = divmod(number, 26)
        letters = chr(97 + rest) + letters
    return f"X{letters}"


def make_models(tree: Path, number: int) -> None:
    """A tree of so many copies of gemma."""
    shutil.copytree(ZOO / "llama", tree / "models/llama", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "pyproject.toml").write_text(SETTINGS)
    text = (ZOO / "gemma/modular_gemma.py").read_text(encoding="utf-8")
    for one in range(number):
        name = cased(one)
        folder = tree / "models" / name.lower()
        folder.mkdir()
        copy = text.replace("Gemma", name).replace("gemma", name.lower())
        (folder / f"modular_{name.lower()}.py").write_text(copy, encoding="utf-8")


def make_lines(tree: Path, lines: int) -> int:
    """One modular file of about so many lines: classes with a method each. Returns their number."""
    (tree / "models/base").mkdir(parents=True)
    (tree / "models/big").mkdir()
    (tree / "pyproject.toml").write_text(SETTINGS)
    method = "    def forward(self, x):\n        x = x + {}\n        x = x * 2\n        return x\n\n\n"
    classes = lines // 8
    base = "".join(f"class Base{one}:\n{method.format(one)}" for one in range(classes))
    (tree / "models/base/modeling_base.py").write_text(base)
    names = ",\n    ".join(f"Base{one}" for one in range(classes))
    own = "".join(f"class Big{one}(Base{one}):\n{method.format(one + 1)}" for one in range(classes))
    text = f"from ..base.modeling_base import (\n    {names},\n)\n\n\n{own}"
    (tree / "models/big/modular_big.py").write_text(text)
    return text.count("\n")


def rows(sizes: Sequence[int], lines: int, folder: Path) -> Iterator[Row]:
    """All lines of the table, as they are measured."""
    for number in sizes:
        tree = folder / str(number)
        make_models(tree, number)
        yield row(tree, f"{number:,} models", number)
        shutil.rmtree(tree)
    for part in (lines // 10, lines):
        tree = folder / f"lines{part}"
        written = make_lines(tree, part)
        yield row(tree, f"one file of {written:,} lines", written)


def table(found: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| | cold, s | growth | MB | warm, s | growth | MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    above: Row | None = None
    for one in found:
        comparable = above is not None and above.what.startswith("one file") == one.what.startswith("one file")
        cells = []
        for cost, other in ((one.cold, above and above.cold), (one.warm, above and above.warm)):
            growth = ""
            if comparable and above is not None and other:
                growth = f"{cost.seconds / one.parts / (other.seconds / above.parts):.2f}"
            cells += [f"{cost.seconds:.2f}", growth, f"{cost.megabytes}"]
        lines.append(f"| {one.what} | {' | '.join(cells)} |")
        above = one
    made = f"Python {platform.python_version()}, {platform.system()}, one worker, by `python utils/bench_scale.py`."
    return "\n".join([*lines, "", made])


def main() -> None:
    """Measure, print the table, and write it where it is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="numbers of models")
    parser.add_argument("--lines", type=int, default=LINES, help="lines of the one large file")
    parser.add_argument("--update", type=Path, help="the page to write the table into")
    chosen = parser.parse_args()
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        for one in rows(chosen.sizes, chosen.lines, Path(folder)):
            found.append(one)
            print(one, flush=True)
            if chosen.update:  # a run takes long, and may be ended
                write_part(chosen.update, PART, table(found))
    print(table(found))


if __name__ == "__main__":
    main()
