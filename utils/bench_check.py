"""Figures of the check, as whole processes in turn with a yardstick: `python utils/bench_check.py`.

The corpus is the modular files of the installed `transformers`; what is to be edited is edited in a copy of the
package. Its yardsticks: a Python process that reads and hashes (SHA-256) the modular files, the generated ones and all
that their conversion reads, once each; the check without its cache ("cold"); and `python -c "import click"`. Of a
touched neighbour, llama's modeling file, there are three kinds: a new time and the same content; a comment at its
top, which goes into no generated file although everything that reads llama is converted; and a line in its normalization, which goes into those of its heirs. Each run
starts from the cache of the untouched tree. Times are medians of seconds, by the clock and of the processor (children
included); ratios are medians of the pairs'.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.util
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

from bench_convert import ROOT, Report, keep_bytecode


CHECK = [sys.executable, f"{ROOT}/utils/check_modular_conversion.py"]
CONVERT = [sys.executable, "-m", "modular_converter"]
IMPORT_CLICK = [sys.executable, "-c", "import click"]
READ_AND_HASH = """
import hashlib, sys
for path in open(sys.argv[1], encoding="utf-8").read().splitlines():
    with open(path, "rb") as file:
        hashlib.sha256(file.read()).hexdigest()
"""
LIST_FILES = """
import os, sys
from modular_converter.settings.load import load_settings
from modular_converter.files.arguments import discover
from modular_converter.convert.batch import Run
paths = discover([sys.argv[1]], None).paths
conversions = Run(load_settings(sys.argv[1])).convert(paths)
print(len(paths), sum(len(one.files) for one in conversions), file=sys.stderr)
read = {path for one in conversions for path, seen in one.reads.items() if len(seen) == 64}
print(*sorted({path for one in conversions for path in (one.path, *one.files)} | read),
      sep="\\n")
"""
SPREAD = 0.04
"""Half of the ratios of a row lie within this share of their median when the machine is quiet."""
LLAMA = os.path.join("models", "llama", "modeling_llama.py")
CARRIED = "        variance = hidden_states.pow(2).mean(-1, keepdim=True)\n"
"""A line of llama's normalization, the class of llama that most models inherit."""


class Bounds(NamedTuple):
    """The number of rounds of runs."""

    least: int
    most: int
    """The most rounds, made only while the figures disagree."""


class Seconds(NamedTuple):
    """The time of one process."""

    wall: float
    cpu: float


def measure(command: Sequence[str], expected: int = 0) -> Seconds:
    """Run a process to its end, children included. Ends everything when its exit code is not the expected one."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != expected:
        raise SystemExit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout}{done.stderr[-4000:]}")
    return Seconds(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def compare(
    report: Report, rows: Mapping[str, Callable[[], Seconds]], yardstick: Callable[[], Seconds], bounds: Bounds
) -> None:
    """Run all rows and the yardstick in turn; report the medians and the median ratios.

    Args:
        report: takes a line for each row.
        rows: name -> run of one process.
        yardstick: run of the process that each row is held against.
        bounds: how many rounds.
    """
    runs = (yardstick, *rows.values())
    rounds = [[run() for run in runs] for _ in range(bounds.least)]
    while len(rounds) < bounds.most and not _agree(rounds):
        rounds.append([run() for run in runs])
    for number, name in enumerate(rows, start=1):
        cells = []
        for column in range(2):
            mine, other = (statistics.median(one[row][column] for one in rounds) for row in (number, 0))
            ratio = statistics.median(one[number][column] / one[0][column] for one in rounds)
            cells.append(f"{mine:7.3f} {other:7.3f} {ratio:6.2f}")
        report(f"{name:32} {'   '.join(cells)}")


def _agree(rounds: Sequence[Sequence[Seconds]]) -> bool:
    """Whether half of the ratios of each row are so close together that more rounds are not needed."""
    for row in range(1, len(rounds[0])):
        low, middle, high = statistics.quantiles((one[row].cpu / one[0].cpu for one in rounds), n=4)
        if high - low > SPREAD * middle:
            return False
    return True


class Tree:
    """A copy of the package with a cache of its own, to edit and to put back."""

    def __init__(self, package: str, above: str) -> None:
        self.folder = os.path.join(above, os.path.basename(package))
        self.cache, self.kept = os.path.join(above, "cache"), os.path.join(above, "kept")
        shutil.copytree(package, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.llama = os.path.join(self.folder, LLAMA)
        with open(self.llama, encoding="utf-8") as file:
            self.text = file.read()
        os.environ["MODULAR_CONVERTER_CACHE"] = self.cache
        self.check = [*CHECK, "--quiet", "--root", self.folder]
        measure(self.check)
        shutil.copytree(self.cache, self.kept)

    def touched(self, text: str | None, expected: int = 0) -> Seconds:
        """The time of the check when llama has a new text, or only a new time."""
        shutil.rmtree(self.cache)
        shutil.copytree(self.kept, self.cache)
        if text is None:
            os.utime(self.llama)
        else:
            self._write(text)
        taken = measure(self.check, expected)
        self._write(self.text)
        return taken

    def _write(self, text: str) -> None:
        with open(self.llama, "w", encoding="utf-8") as file:
            file.write(text)

    def cold(self) -> Seconds:
        """The time of the check without the cache."""
        return measure([*self.check, "--no-cache"])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", type=int, default=15, help="rounds of the quick figures at most, a fifth of cold ones"
    )
    parser.add_argument("--no-cold", action="store_true", help="only the quick figures")
    parser.add_argument("--update", metavar="PAGE", help="put the figures into a page, between its marks")
    options = parser.parse_args()
    keep_bytecode()
    report = Report()
    report(
        f"{datetime.date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"transformers {version('transformers')}, click {version('click')}, ruff {version('ruff')}"
    )
    package = os.path.dirname(str(importlib.util.find_spec("transformers").origin))  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as above:
        tree = Tree(package, above)
        listed = os.path.join(above, "files")
        count_files(os.path.join(tree.folder, "models"), listed, report)
        report(f"{'seconds':32} {'wall: ours, yardstick, ratio':24}   cpu: ours, yardstick, ratio")
        quick = Bounds(min(5, options.runs), options.runs)
        helps = {"modular-convert --help": CONVERT, "check-modular-conversion --help": CHECK}
        rows = {name: functools.partial(measure, [*command, "--help"]) for name, command in helps.items()}
        measure(IMPORT_CLICK)  # writes its bytecode
        compare(report, rows, lambda: measure(IMPORT_CLICK), quick)
        read = [sys.executable, "-c", READ_AND_HASH, listed]
        compare(report, {"warm, against hashing": lambda: measure(tree.check)}, lambda: measure(read), quick)
        if not options.no_cold:
            compare_with_cold(report, tree, Bounds(2, max(2, options.runs // 5)))
    if options.update:
        report.put_into(options.update)


def count_files(models: str, listed: str, report: Report) -> None:
    """List the files that the yardstick reads, and return their number."""
    done = subprocess.run([sys.executable, "-c", LIST_FILES, models], cwd=ROOT, capture_output=True, check=True)
    with open(listed, "wb") as file:
        file.write(done.stdout)
    paths = done.stdout.decode().splitlines()
    modular, generated = done.stderr.split()[-2:]
    report(
        f"{int(modular)} modular files, {int(generated)} generated; with what they read {len(paths)} files, "
        f"{sum(map(os.path.getsize, paths)) / 1e6:.1f} MB"
    )


def compare_with_cold(report: Report, tree: Tree, bounds: Bounds) -> None:
    """The time of the check after three kinds of changes of llama, relative to a check without a cache."""
    if tree.text.count(CARRIED) != 1:
        raise SystemExit(f"{LLAMA} has changed: put a line into the benchmark that stands in it once")
    carried = tree.text.replace(CARRIED, f"{CARRIED}        # touched\n")
    rows = {
        "llama: new time, cold": lambda: tree.touched(None),
        "llama: comment on top, cold": lambda: tree.touched("# touched\n" + tree.text),
        "llama: carried edit, cold": lambda: tree.touched(carried, expected=1),
    }
    compare(report, rows, tree.cold, bounds)


if __name__ == "__main__":
    main()
