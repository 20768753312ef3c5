"""Verdicts of processes that have never checked anything, about copies of a tree in another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from modular_converter.check.run import CheckOptions, check


def verdict(root: Path, cache: str | None, since: str | None = None) -> list[str]:
    """The exit code and the findings of a check, sorted, with paths relative to the tree."""
    found = check(CheckOptions(root=str(root), cache=cache, changed_since=since))
    return [str(found.exit_code), *sorted(repr(one).replace(str(root), "ROOT") for one in found.findings)]


class FreshProcesses:
    """A process that has loaded the checker, with another hash seed, and forks for each verdict."""

    def __init__(self, elsewhere: Path) -> None:
        self._copy = elsewhere / "copy"
        self._copy.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONHASHSEED": "7"}
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, root: Path) -> None:
        """Let a new process check a copy of a tree without a cache, while the caller does something else."""
        assert self._process.stdin
        self._make_copy(root)
        print(self._copy, file=self._process.stdin, flush=True)

    def verdict(self) -> list[str]:
        """The verdict that was asked for."""
        assert self._process.stdout
        told = self._process.stdout.readline()
        shutil.rmtree(self._copy)
        return list(json.loads(told)) if told.strip() else ["the process ended"]

    def started(self, root: Path) -> list[str]:
        """The verdict of a new interpreter."""
        self._make_copy(root)
        command = [sys.executable, __file__, str(self._copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        shutil.rmtree(self._copy)
        return list(json.loads(done.stdout)) if done.stdout else [done.stderr]

    def _make_copy(self, root: Path) -> None:
        subprocess.run(["cp", "-a", str(root), str(self._copy)], check=True)  # `shutil` copies no pipes

    def close(self) -> None:
        """End the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


def serve() -> None:
    """Answer each path on the standard input by the verdict of a fork."""
    from modular_converter.check import blame, compare  # noqa: F401  # loaded once, and used by each fork
    from modular_converter.convert import batch  # noqa: F401
    from modular_converter.convert.inherit import override  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                answer(Path(line.strip()))
            except BaseException as error:
                print(json.dumps([repr(error)]), flush=True)
            finally:
                os._exit(0)
        os.waitpid(child, 0)


def answer(root: Path) -> None:
    """Print the verdict about a tree."""
    print(json.dumps(verdict(root, None)), flush=True)


if __name__ == "__main__":
    answer(Path(sys.argv[1])) if sys.argv[1:] else serve()
