"""The YAML of the documentation is valid, and the commands and hooks in it are ones that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from modular_converter.check_cli import check_command


ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(block, id=f"{page} {number}")
    for page in ("README.md", "docs/guide.md")
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
