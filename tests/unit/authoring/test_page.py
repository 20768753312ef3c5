"""The example of docs/modularize.md does what it says: each command is run, and prints what is shown."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from modular_converter.commands.subcommands import modularize_command, suggest_command


pytestmark = pytest.mark.usefixtures("cache")
PAGE = (Path(__file__).parents[3] / "docs/modularize.md").read_text(encoding="utf-8")
COMMANDS: dict[tuple[str, ...], click.Command] = {
    ("modular-convert", "suggest"): suggest_command,
    ("modular-convert", "modularize"): modularize_command,
    ("modular-convert",): convert_command,
    ("check-modular-conversion",): check_command,
}


def steps() -> list[tuple[str, list[str]]]:
    """The commands of the example, each with the lines that it prints."""
    (block,) = re.findall(r"^<!-- example -->\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def run(command: str) -> str:
    words = shlex.split(command)
    if words[0] == "mv":
        shutil.move(words[1], words[2])
        return ""
    name = next(one for one in COMMANDS if tuple(words[: len(one)]) == one)
    done = CliRunner().invoke(COMMANDS[name], words[len(name) :])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_example_does_what_it_says(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(zoo)
    files = (zoo / f"models/roberta/{kind}_roberta.py" for kind in ("configuration", "modeling"))
    flat = {path: path.read_bytes() for path in files}
    for command, shown in steps():
        printed = run(command).splitlines()
        for line in shown:
            beginning, cut, _ = line.partition("…")
            fits = (one.startswith(beginning) if cut else one == line for one in printed)
            assert any(fits), f"{command} does not print {line!r} but\n" + "\n".join(printed)
    assert all(path.read_bytes() == content for path, content in flat.items())
    for path, text in re.findall(r"^<!-- written: (\S+) -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        assert text in (zoo / path).read_text(encoding="utf-8")
