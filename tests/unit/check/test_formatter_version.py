"""The check, the fixer and the converter in an environment whose ruff has another version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.check.compare import differ_by_layout_alone
from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.convert import convert_command
from tests.unit.formatters import ruff_in, set_own
from tests.unit.trees import BASE, edit, run


pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for ruff")
OTHER_STYLE = ("--config", "format.quote-style='single'", "--config", "line-length=30")


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Path, cache: None) -> Path:
    """The tree, in an environment with a newer ruff that formats otherwise."""
    set_own(monkeypatch, ruff_in(tmp_path / "newer", "99.1.0", *OTHER_STYLE))
    monkeypatch.setenv("PATH", f"/nowhere{os.pathsep}{tmp_path / 'git'}")
    (tmp_path / "git").mkdir()
    (tmp_path / "git/git").symlink_to("/usr/bin/git")
    return tree


def texts(tree: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(tree.rglob("*.py"))}


def convert(tree: Path, *arguments: str) -> Result:
    return CliRunner().invoke(convert_command, ["--root", str(tree), *arguments])


def test_untouched_files_are_one_finding(newer: Path) -> None:
    result = run(newer)
    assert result.exit_code == 2 and result.output.count("MC") == 1, result.output
    assert "MC118" in result.output and "2 generated files differ by formatting alone" in result.output
    assert "pip install ruff==0.14.10" in result.output and "\n-" not in result.output
    warm, cold = (check(CheckOptions(root=str(newer), cache=folder)) for folder in (str(newer / "cache"), None))
    assert warm.findings == cold.findings


def test_other_code_is_told_apart_and_has_no_cure_that_rewrites(newer: Path) -> None:
    edit(newer, "modeling_leaf.py", "x + 1", "x + 2")
    before = texts(newer)
    for arguments in ((), ("--write",)):
        result = run(newer, *arguments)
        assert result.exit_code == 2 and "MC401" in result.output and "1 generated file differs by" in result.output
        assert "modeling_leaf.py" in result.output and "modeling_heir.py:" not in result.output
        assert "First cure MC118." in result.output
        assert texts(newer) == before


def test_what_the_formatter_makes_the_same_differs_by_formatting_and_a_missing_file_does_not(newer: Path) -> None:
    edit(newer, "modeling_leaf.py", "from torch import nn\n", "from torch import nn\nfrom torch import nn\n")
    (newer / "models/heir/modeling_heir.py").unlink()
    result = run(newer)
    assert "1 generated file differs by" in result.output and "modeling_leaf.py:" not in result.output
    assert "modeling_heir.py" in result.output


def test_a_comment_is_more_than_layout(newer: Path) -> None:
    edit(newer, "modeling_leaf.py", "return x + 1", "return x + 1  # by hand")
    assert "MC401" in run(newer).output


def test_the_converter_writes_nothing_and_says_so_once(newer: Path) -> None:
    edit(newer, "modeling_base.py", "x + 1", "x + 7")
    before = texts(newer)
    result = convert(newer, "all")
    assert result.exit_code == 2 and result.output.count("MC118") == 1 and texts(newer) == before


def test_the_version_that_fits_is_used_from_the_path(newer: Path, tmp_path: Path, monkeypatch) -> None:
    fitting = ruff_in(tmp_path / "fitting", "0.14.10")
    monkeypatch.setenv("PATH", f"{fitting.parent}{os.pathsep}{os.environ['PATH']}")
    assert run(newer).exit_code == 0
    assert convert(newer, "all").exit_code == 0
    assert run(newer).exit_code == 0


def test_a_warm_check_starts_no_program(newer: Path, tmp_path: Path) -> None:
    asked = tmp_path / "newer/asked"
    (newer / "pyproject.toml").write_text('[tool.modular-converter]\nformatter-version = "99.1.0"\n')
    assert run(newer, "--write").exit_code == 0
    number = len(asked.read_text())
    assert run(newer).exit_code == 0 and len(asked.read_text()) == number
    ruff_in(tmp_path / "newer", "99.1.2", *OTHER_STYLE)
    assert "MC118" in run(newer).output, "a replaced program is asked again"


def require(tree: Path, **versions: str) -> None:
    """Give models a ruff configuration of their own that requires a version."""
    (tree / "pyproject.toml").write_text("[tool.modular-converter]\n")
    for model, version in versions.items():
        (tree / f"models/{model}/ruff.toml").write_text(f'required-version = "{version}"\n')


def test_each_folder_has_the_version_that_its_own_settings_require(newer: Path, tmp_path: Path, monkeypatch) -> None:
    require(newer, leaf="==99.1.0")
    before = texts(newer)
    for arguments in ((), ("--write",)):
        result = run(newer, *arguments)
        assert result.exit_code == 2 and result.output.count("MC") == 1 and "0.14.10" in result.output
        assert texts(newer) == before
    assert run(newer, "leaf").exit_code == 1, "its own version is there, and formats otherwise"
    assert "MC118" not in run(newer, "leaf").output
    fitting = ruff_in(tmp_path / "fitting", "0.14.10")
    monkeypatch.setenv("PATH", f"{fitting.parent}{os.pathsep}{os.environ['PATH']}")
    assert run(newer, "--write").exit_code == 0
    changed = {path for path, text in texts(newer).items() if text != before[path]}
    assert changed == {str(newer / "models/leaf/modeling_leaf.py")}
    for cache in (str(newer / "cache"), None):
        assert check(CheckOptions(root=str(newer), cache=cache)).exit_code == 0
    fitting.unlink()
    for cache in (str(newer / "cache"), None):
        assert [one.code for one in check(CheckOptions(root=str(newer), cache=cache)).findings] == ["MC118"]


def test_versions_that_no_program_has_are_a_finding_each(newer: Path) -> None:
    require(newer, leaf="==0.13.0", heir=">=0.1,<0.14")
    result = run(newer)
    assert result.exit_code == 2 and result.output.count("error MC118") == result.output.count("MC") == 2
    assert "pip install ruff==0.13.0" in result.output and 'pip install "ruff>=0.1,<0.14"' in result.output
    assert "MC118" in run(newer, "leaf").output and "0.13.0" not in run(newer, "heir").output
    assert convert(newer, "all").output.count("error MC118") == 2


@pytest.mark.parametrize("version", ["==0.14.10", ">=0.14,<0.15", ">=0.14.9rc1"])
def test_a_required_version_that_fits_is_obeyed_in_silence(tree: Path, cache: None, version: str) -> None:
    require(tree, leaf=version)
    assert run(tree).exit_code == 0 and run(tree).exit_code == 0


def test_a_requirement_that_only_the_formatter_understands_is_left_to_it(tree: Path, cache: None) -> None:
    for version, exit_code in ((">=0.14rc1", 0), (">=99rc1", 2), ("==0.14.10", 0), (">=99rc1", 2)):
        require(tree, leaf=version)
        assert run(tree).exit_code == run(tree, "--no-cache").exit_code == exit_code
    assert "MC115" in run(tree).output


def test_a_right_version_names_layout_and_rewrites_it(tree: Path) -> None:
    edit(tree, "modeling_leaf.py", "x + 1", "(x\n            + 1)")
    result = run(tree)
    assert result.exit_code == 1 and "`LeafMLP` differs in layout alone; it was edited by hand" in result.output
    assert run(tree, "--write").exit_code == 0 and run(tree).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("x = 'a'\n", 'x = "a"\n', True),
        ("x = (1)\n", "x = 1\n", True),
        ("x = f(a,\n  b)\n", "x = f(a, b,)\n", True),
        ('def f():\n    """A\n      b\n    """\n', 'def f():\n  """A\n    b\n  """\n', True),
        ("#a\nx = 1\n", "x = 1  # a\n", True),
        ("del (a, b)\n", "del a, b\n", True),
        (BASE, BASE.replace("x + 1", "x+1"), True),
        ("x = 'a'\n", "x = 'b'\n", False),
        ("x = 1\n", "x = 1  # a\n", False),
        ("x = '# a'\n", "x = '#  a'\n", False),
        ('def f():\n    """A"""\n', 'def f():\n    """B"""\n', False),
        ("import a\nimport b\n", "import b\nimport a\n", False),
        ("if a:\n    b\nc\n", "if a:\n    b\n    c\n", False),
        ("x = 1\n", "x = 1 +\n", False),
        ("def f(:\n", "def f(:\n", False),
        ("x = 1\n", "x = 1.0\n", False),
        # The texts are compared from the first definition on that differs, and to the last one.
        ("a = 1\n\n\nb = (2)\n\n\nc = 3\n", "a = 1\n\n\nb = 2\n\n\nc = 3\n", True),
        ("a = 1\n\n\nb = 2\n\n\nc = 3\n", "a = 1\n\n\nb = 4\n\n\nc = 3\n", False),
        ("a = 1\n\n\nb = 2\n", "a = 1\n\n\nb = 2\n\n\nc = 3\n", False),
        ('a = """\n\n\nb = (2)\n\n\n"""\n', 'a = """\n\n\nb = 2\n\n\n"""\n', False),
        (
            "a = 1\n\n\nif b:\n  if c:\n    d\n\n\n    e\n",
            "a = 1\n\n\nif b:\n    if c:\n        d\n\n\n    e\n",
            False,
        ),
    ],
)
def test_layout(old: str, new: str, same: bool) -> None:
    assert differ_by_layout_alone(old, new) is same
