"""Figures of the converter, as whole processes in turn with a yardstick: `python utils/bench_convert.py`.

One model: from process start to files written, formatting included, against `python -c "import libcst"`.
The corpus: all modular files of the installed `transformers`, one worker, cold, against `libcst.parse_module`
of the same modular files and neighbours, once each. Times are medians of CPU seconds (children included);
the ratio is the median of the pairs'.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from marked_pages import write_part


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMPORT_LIBCST = [sys.executable, "-c", "import libcst"]
PARSE = """
import sys, libcst
sys.path.insert(0, {root!r})
from modular_converter.settings.load import profile_settings
from modular_converter.convert.schedule import required_files
from modular_converter.files.arguments import discover
from modular_converter.convert.source.library import Library
library = Library(profile_settings())
modular = discover([{models!r}], None).paths
neighbours = {{file for path in modular for file in required_files(path, library)}}
for path in sorted({{*modular, *neighbours}}):
    libcst.parse_module(library.text(path))
print(len(modular), len(neighbours))
"""
STEPS = """
import cProfile, pstats, sys
sys.path.insert(0, {root!r})
from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings
from modular_converter.files.arguments import discover
profile = cProfile.Profile()
paths = discover([{models!r}], None).paths
profile.runcall(Run(profile_settings(), workers=1).convert, paths)
stats = pstats.Stats(profile).stats
for step in ("required_files", "open_target", "resolve_imports", "rename_neighbours", "build_classes",
             "collect_definitions", "assemble", "lint", "report_changed_meanings", "format_files", "examine"):
    found = [entry for (_, _, name), entry in stats.items() if name == step]
    print(f"{{step:24}} {{max((entry[3] for entry in found), default=0.0):8.2f}} s")
"""


class Report:
    """The figures, printed as they come and kept for a page."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line.rstrip())
        print(line, flush=True)

    def put_into(self, path: str) -> None:
        """Replace the text between the marks of a page."""
        figures = "\n".join(self.lines).strip()
        write_part(Path(path), "figures", f"```text\n{figures}\n```")


def keep_bytecode() -> None:
    """Let the processes write bytecode, which an installer does too: the first of each kind is not counted."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def cpu_seconds(command: Sequence[str]) -> float:
    """CPU seconds, user and system, of a finished process and of those it waited for."""
    for output in (following for name, following in zip(command, command[1:], strict=False) if name == "--output-dir"):
        shutil.rmtree(output, ignore_errors=True)  # every run writes its files anew
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(report: Report, name: str, command: Sequence[str], yardstick: Sequence[str], runs: int) -> None:
    """Run the two in turn; report both medians and the median ratio."""
    cpu_seconds(command), cpu_seconds(yardstick)
    pairs = [(cpu_seconds(command), cpu_seconds(yardstick)) for _ in range(runs)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(mine / other for mine, other in pairs)
    report(f"{name:28} {ours:8.2f} s   yardstick {theirs:8.2f} s   ratio {ratio:.2f}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="pairs for one model (the corpus takes one pair fewer)")
    parser.add_argument("--no-corpus", action="store_true", help="only the single models")
    parser.add_argument("--update", metavar="PAGE", help="put the figures into a page, between its marks")
    options = parser.parse_args()
    keep_bytecode()
    report = Report()
    import importlib.util

    models = os.path.join(os.path.dirname(str(importlib.util.find_spec("transformers").origin)), "models")  # type: ignore[union-attr]
    report(
        f"{datetime.date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"transformers {version('transformers')}, libcst {version('libcst')}, ruff {version('ruff')}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.join(temporary, "models")
        convert = [sys.executable, "-m", "modular_converter", "--quiet", "--package", "transformers", "--output-dir"]
        for model in ("gemma", "olmo2"):
            compare(report, f"one model ({model})", [*convert, folder, model], IMPORT_LIBCST, options.runs)
        if options.no_corpus:
            return
        parse = [sys.executable, "-c", PARSE.format(root=ROOT, models=models)]
        compare(
            report,
            "corpus, one worker, cold",
            [*convert, folder, "--workers", "1", "all"],
            parse,
            max(1, options.runs // 2),
        )
        peak = peak_kib([*convert, folder, "--workers", "1", "all"])
        report(f"peak memory of a worker      {peak / 1024:8.0f} MB")
    report("where the time goes (cumulative, under a profiler, which about doubles it):")
    steps = [sys.executable, "-c", STEPS.format(root=ROOT, models=models)]
    report(subprocess.run(steps, capture_output=True, text=True, check=True).stdout.rstrip())
    if options.update:
        report.put_into(options.update)


def peak_kib(command: Sequence[str]) -> int:
    """Peak resident memory of one process, in KiB; a fresh interpreter asks, so that no other child counts."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True, check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(output.stdout)


if __name__ == "__main__":
    main()
