"""Every command of ours on every page: it is parsed by the command itself, and run in a library of models where that takes
neither minutes, nor GPUs, nor the network.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from modular_converter.commands.subcommands import SUBCOMMANDS
from tests.unit.trees import git


ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs/reference/commands.md"
"""Written from the commands themselves."""
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page != GENERATED
]
COMMANDS = ("modular-convert", "check-modular-conversion", "modular-plan")
FENCE = re.compile(r"^[ ]*```[^\n]*\n(.*?)^[ ]*```[ ]*$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(rf"`((?:{'|'.join(COMMANDS)})(?: [^`]*)?)`")
STANDS_FOR = {
    r"\bN\b": "2",
    r"\bFILE\b|models/(?:new|kiwi)/modeling_(?:new|kiwi)\.py": "models/gemma/modeling_gemma.py",
    r"\bnew (?:MODEL|kiwi|emu)\b": "new fresh",
    r"\bmodularize (?:MODEL|phi|mistral)\b": "modularize llama",
    r"\bMODELS?\b|\bFILES\b|\./graph|\b(?:phi|kiwi|emu)\b": "gemma",
    r"\bPARENTS\b": "llama",
    r"\bTOOL\b": "torch",
    r"\bCODE\b": "MC201",
    r"\bREF\b": "main",
    r"\bDIR\b": "out",
    r"\bPATH\b": "models/gemma/modular_gemma.py",
    r":(?:LINE|150)\b": ":20",
    r" …| [<>] .*": "",
}
"""Pattern of what a page has -> what stands for it in the library of the test."""
ONLY_PARSED = {
    "--watch": "runs until Ctrl-C",
    "lsp": "serves until its input ends; tests/unit/lsp",
    "transformers": "reads a whole release; tests/corpus and tests/unit/breaking",
    r"\.whl": "needs a release",
    "older-checkout": "needs another checkout",
    "modularize all": "takes a minute; tests/unit/authoring",
    "--breaking$": "names the option",
    r"convert (?!all$|gemma$)[a-z]+$": "names the command",
    "merge-driver": "changes the clone; tests/unit/git/test_merge_driver.py",
}

PLAN_ONLY_PARSED = {
    r"plan [a-z]+$": "names the command",
    "advise|memory": "count a full-size model; tests/parallel/advice",
    "committed": "proves the plans of the library, more than a minute; tests/parallel/tables",
    "coverage": "proves many models, minutes; tests/parallel/tables",
    "plan run": "starts processes; tests/parallel/commands/test_run.py",
    "plan verify": "starts processes, and needs a file; tests/parallel/test_cli.py",
    "plan write": "needs a model that the library knows; tests/parallel/source",
    "plan schedule": "traces a model in stages; tests/parallel/schedule",
    "plan diff": "proves two plans; tests/parallel/test_cli.py",
    "plan tune": "runs steps in processes, minutes; tests/parallel/test_tune.py",
    "TOOL": "stands for the commands beside it",
}
"""Of the commands for plans, those that are not run, and why."""


def commands_of(page: Path) -> Iterator[str]:
    """The commands of ours in the fenced blocks and in the code of a page."""
    text = re.sub(r"\$\{\{.*?\}\}", "main", page.read_text(encoding="utf-8"))
    for block in FENCE.finditer(text):
        for line in block[1].splitlines():
            for part in re.split(r"&&|\|\||[|;]|\$\(|\)\"", line.partition(" #")[0]):
                part = re.sub(r"^(?:\$ |\.venv/bin/|- run: |run: |entry: )", "", part.strip())
                if part.split(" ")[0] in COMMANDS:
                    yield part
    for match in INLINE.finditer(FENCE.sub("", text)):
        yield " ".join(match[1].split())


FOUND = sorted({command: page for page in PAGES for command in commands_of(page)}.items())


def words_of(line: str) -> list[str]:
    """The words of a command, with words of the test's library for the page's own."""
    for pattern, word in STANDS_FOR.items():
        line = re.sub(pattern, word, line)
    return shlex.split(line)


def click_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of some words, and its arguments. Raises `UsageError` for one that does not exist."""
    name, *rest = words
    if name == "modular-plan":
        pytest.importorskip("torch")
        from modular_converter.parallel.cli import main

        found: click.Command = main
    else:
        found = convert_command if name == "modular-convert" else check_command
    if name == "modular-convert" and rest and rest[0] in SUBCOMMANDS:
        found = SUBCOMMANDS[rest.pop(0)]
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        inner = found.get_command(click.Context(found), rest[0])
        if inner is None:
            raise click.UsageError(f"there is no command {rest[0]!r}")
        found = inner
        del rest[0]
    return found, rest


def test_there_are_commands() -> None:
    assert len(FOUND) > 90 and {command.split(" ")[0] for command, _ in FOUND} == set(COMMANDS)


@pytest.mark.parametrize(("line", "page"), FOUND, ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_command_can_be_parsed(line: str, page: Path) -> None:
    found, rest = click_command(words_of(line))
    if rest:  # without, the page names the command
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(click.exceptions.Exit):
            found.make_context(line, with_model(found, rest))


def with_model(found: click.Command, rest: list[str]) -> list[str]:
    """The arguments with a model, where a page shows only options."""
    named = any(isinstance(one, click.Argument) for one in found.params)
    return [*rest, "gemma"] if named and all(one.startswith("-") or one.isdigit() for one in rest) else rest


RUN = [
    line
    for line, _ in FOUND
    if " " in line and not line.startswith("modular-plan") and not any(re.search(one, line) for one in ONLY_PARSED)
]


def test_most_commands_are_run() -> None:
    assert len(RUN) > 40


@pytest.fixture(scope="module")
def library(current: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = Path(shutil.copytree(current, tmp_path_factory.mktemp("pages") / "library"))
    git(library, "update-ref", "refs/remotes/origin/main", "HEAD")
    return library


@pytest.mark.parametrize("line", RUN)
def test_a_command_runs(line: str, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, rest = click_command(words_of(line))
    monkeypatch.chdir(library)
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(library.parent / "cache"))
    done = CliRunner().invoke(found, with_model(found, rest), input="class A: ...\n")
    git(library, "checkout", "-q", "-f", ".")
    git(library, "clean", "-q", "-f", "-d")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 1), done.output


PLANS = {
    line: re.sub(r"\b(?:MODEL|llama|bert)\b", "gpt2", line).replace(
        "derive --max-collectives N", "derive gpt2 --max-collectives 2"
    )
    for line, _ in FOUND
    if line.startswith("modular-plan ") and not any(re.search(one, line) for one in PLAN_ONLY_PARSED)
}
"""A command of a page -> the same for gpt2, whose plan takes the least time, but for qwen3, which vLLM can run."""


def test_plans_are_shown_derived_and_exported() -> None:
    assert {line.split(" ")[1] for line in PLANS} == {"--help", "show", "derive", "export"}


@pytest.mark.usefixtures("derived_once", "one_pool")
@pytest.mark.parametrize("line", sorted(set(PLANS.values())))
def test_a_command_for_plans_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, rest = click_command(shlex.split(line))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(found, rest)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 0 and (done.output or list(tmp_path.iterdir())), done.output
