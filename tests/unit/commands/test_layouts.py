"""Libraries whose modular files have another name, or whose models share one folder: every command finds its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from modular_converter.commands.subcommands import SUBCOMMANDS


PARENT = """\
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, x):
        return self.outer(self.inner(x))


class LlamaModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.block = Block(width)
"""
HEIR = """\
from {llama} import Block as LlamaBlock
from {llama} import LlamaModel


class Block(LlamaBlock):
    def forward(self, x):
        return self.inner(x)


class EmuModel(LlamaModel):
    pass
"""
FLAT = PARENT.replace("Llama", "Yak").replace("(self.inner(x))", "(self.inner(x)) + x")


class Shape(NamedTuple):
    settings: str
    llama: str
    yak: str
    modular: str
    emu: str
    dotted: str


OTHER_NAME = Shape(
    'modular-kind = "delta"',
    "llama/modeling_llama.py",
    "yak/modeling_yak.py",
    "emu/delta_emu.py",
    "emu/modeling_emu.py",
    "..llama.modeling_llama",
)
ONE_FOLDER = Shape(
    'layout = "files"\ndefault-kind = "{model}"', "llama.py", "yak.py", "modular_emu.py", "emu.py", ".llama"
)


@pytest.fixture(params=[OTHER_NAME, ONE_FOLDER], ids=["another name", "one folder"])
def shape(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shape:
    """A library in the current folder."""
    one: Shape = request.param
    table = '[tool.modular-converter]\npackage = "acme"\nroot = "acme/nets"\nformatter = "none"\nauto-tables = []\n'
    (tmp_path / "pyproject.toml").write_text(table + one.settings + "\n")
    for name, text in ((one.llama, PARENT), (one.yak, FLAT), (one.modular, HEIR.format(llama=one.dotted))):
        path = tmp_path / "acme/nets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return one


def convert(*arguments: str) -> Result:
    command = SUBCOMMANDS.get(arguments[0])
    given = arguments[1:] if command else arguments
    return CliRunner().invoke(command or convert_command, list(given), catch_exceptions=False)


def check(*arguments: str) -> Result:
    return CliRunner().invoke(check_command, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("argument", ["emu", "all", "acme", "acme/nets/{modular}", "acme/nets/**/*.py"])
def test_every_argument_finds_the_modular_file(shape: Shape, argument: str) -> None:
    done = convert(argument.format(modular=shape.modular))
    assert done.exit_code == 0 and "class EmuModel" in Path("acme/nets", shape.emu).read_text(), done.output
    assert check().exit_code == 0


def test_a_generated_file_without_its_modular_file_is_told(shape: Shape) -> None:
    assert convert("all").exit_code == 0
    Path("acme/nets", shape.modular).unlink()
    assert "does not exist" in check("acme/nets").output


def test_where_and_graph_know_the_model(shape: Shape) -> None:
    assert convert("all").exit_code == 0
    line = Path("acme/nets", shape.emu).read_text().split("\n").index("        return self.inner(x)") + 1
    assert shape.modular in convert("where", f"acme/nets/{shape.emu}:{line}").output
    done = convert("graph", "--format", "json")
    assert [one["heir"] for one in json.loads(done.output)["edges"]] == ["emu"], done.output


def test_a_flat_file_becomes_a_modular_one(shape: Shape) -> None:
    done = convert("modularize", "yak")
    assert done.exit_code == 0 and "inherits from llama" in done.output, done.output
    name = shape.modular.replace("emu", "yak")
    assert "import Block as LlamaBlock" in Path("acme/nets", name).read_text()
    assert convert("yak").exit_code == 0 and check().exit_code == 1, "emu is not converted yet"


def test_a_new_model_begins(shape: Shape) -> None:
    done = convert("new", "kiwi", "--from", "llama")
    assert done.exit_code == 0, done.output
    assert Path("acme/nets", shape.modular.replace("emu", "kiwi")).exists()
    assert "class KiwiModel" in Path("acme/nets", shape.emu.replace("emu", "kiwi")).read_text()
