"""The YAML of the documentation is valid, and its commands and hooks exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from modular_converter.commands.check import check_command


ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(block, id=f"{page} {number}")
    for page in ("README.md", "docs/how-to/pre-commit.md", "docs/how-to/github-actions.md")
    for number, block in enumerate(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")), start=1)
]


def values(node: object, key: str) -> Iterator[str]:
    """All texts below a key, however deep."""
    if isinstance(node, dict):
        yield from (value for name, value in node.items() if name == key and isinstance(value, str))
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from values(child, key)


def test_there_are_examples():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_is_valid(block):
    document = yaml.safe_load(block)
    commands = [shlex.split(line) for key in ("run", "entry") for line in values(document, key)]
    ours = [command[1:] for command in commands if command[0] == "check-modular-conversion"]
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    named = set(values(document, "id"))
    assert ours or named
    assert named <= hooks
    for arguments in ours:
        check_command.make_context("check-modular-conversion", arguments)  # raises for what it does not know


def test_a_hook_runs_at_every_commit():
    """One that only deletes, or changes settings or the tool, makes files stale as well."""
    texts = [(ROOT / name).read_text() for name in (".pre-commit-hooks.yaml", ".pre-commit-config.yaml")]
    documents = [yaml.safe_load(text) for text in (*texts, *(block.values[0] for block in BLOCKS))]
    hooks = [hook for document in documents for hook in with_entry(document)]
    ours = [hook for hook in hooks if hook["entry"].startswith("check-modular-conversion")]
    assert len(ours) >= 4
    for hook in ours:
        assert hook["always_run"] is True and hook["pass_filenames"] is False and "files" not in hook


def with_entry(node: object) -> Iterator[dict[str, object]]:
    """All tables that hold a command as `entry`, however deep."""
    if isinstance(node, dict) and "entry" in node:
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from with_entry(child)


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_a_workflow_runs_what_exists(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    triggers = document[True]  # YAML reads `on` as true
    assert "schedule" not in triggers or "workflow_dispatch" in triggers, "what runs by the clock can be run by hand"
    words = [word for line in values(document, "run") for word in shlex.split(line)]
    paths = [word for word in words if "/" in word and word.endswith(".py")]
    actions = [f"{one}action.yml" for one in values(document, "uses") if one.startswith("./")]
    assert all((ROOT / one).is_file() for one in [*paths, *actions])


def test_the_action_gives_the_check_options_that_it_has() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (command,) = (line for line in values(action, "run") if "check-modular-conversion" in line)
    given = set(re.findall(r"--[\w-]+", command))
    assert given <= {name for option in check_command.params for name in option.opts} and len(given) == 2
    read = {value for step in action["runs"]["steps"] for value in step.get("env", {}).values()}
    assert {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]} <= read
