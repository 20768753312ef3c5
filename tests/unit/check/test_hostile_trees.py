"""Trees that were made to do harm: each check ends, runs nothing of the tree, and neither reads nor writes outside."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from modular_converter.check.cache import store
from modular_converter.check.run import CheckOptions, CheckResult, check
from modular_converter.convert.batch import Run
from tests.unit.trees import git


pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes, links and modes of POSIX")
TABLE = "[tool.modular-converter]\n"
GENERATED, MODULAR, BASE = (
    "models/leaf/modeling_leaf.py",
    "models/leaf/modular_leaf.py",
    "models/base/modeling_base.py",
)


def result(tree: Path, **options: object) -> CheckResult:
    return check(CheckOptions(root=str(tree), **options))  # type: ignore[arg-type]


def codes(found: CheckResult) -> set[str]:
    return {one.code for one in found.findings}


# Things in the place of files


def pipe(path: Path) -> None:
    os.mkfifo(path)


def in_use(path: Path) -> None:
    """A socket; its path may be longer than the system allows, so it is bound from its folder."""
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


THINGS = {
    "a pipe": pipe,
    "a socket": in_use,
    "a folder": Path.mkdir,
    "a link to /dev/zero": link_to("/dev/zero"),
    "a link to a terminal": link_to("/dev/tty"),
    "a link to /proc/self/mem": link_to("/proc/self/mem"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("name", [GENERATED, MODULAR, BASE])
def test_things_that_are_no_files_are_findings(tree, thing, name):
    (tree / name).unlink()
    THINGS[thing](tree / name)
    for fix in (False, True):
        found = result(tree, fix=fix)
        assert found.exit_code in (1, 2) and "MC199" not in codes(found)
    assert result(tree).exit_code != 0


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize(
    "name",
    [
        "models/leaf/__init__.py",
        "models/leaf/ruff.toml",
        ".git/index",
    ],
)
def test_things_in_the_place_of_other_files_hide_nothing(tree, thing, name):
    (tree / GENERATED).write_text("x = 1\n")
    (tree / name).unlink(missing_ok=True)
    THINGS[thing](tree / name)
    for since in (None, "HEAD"):
        found = result(tree, changed_since=since)
        assert found.exit_code in (1, 2) and "MC199" not in codes(found)


def test_folders_that_link_to_each_other_are_searched_once(tree):
    for one in range(40):
        (tree / f"models/f{one}").mkdir()
        for other in range(40):
            (tree / f"models/f{one}/link{other}").symlink_to(f"../f{other}")
    assert result(tree).exit_code == 0


def test_a_hard_link_to_a_private_file_is_cut(tree, tmp_path):
    private = tmp_path / "private.py"
    private.write_text("precious = 1\n")
    (tree / GENERATED).unlink()
    os.link(private, tree / GENERATED)
    assert result(tree, fix=True).exit_code == 0
    assert private.read_text() == "precious = 1\n"


@pytest.mark.parametrize(
    "names", [("é", "e\u0301"), ("Leaf2", "leaf2"), ("ﬁ", "fi")], ids=["normal form", "case", "ligature"]
)
def test_names_that_are_one_on_other_systems_are_two_models(tree, names):
    text = (tree / MODULAR).read_text()
    for number, name in enumerate(names):
        (tree / "models" / name).mkdir()
        (tree / "models" / name / f"modular_{name}.py").write_text(
            f"{text}\n\nclass Number{number}(HeirMLP):\n    pass\n"
        )
    assert result(tree, fix=True).exit_code == 0
    found = [(tree / "models" / name / f"modeling_{name}.py").read_text() for name in names]
    assert ["Number0" in text for text in found] == [True, False]


# Contents


@pytest.mark.parametrize(
    "content",
    [b"\0" * 1000, "x = 1\n".encode("utf-16"), b"\xff\xfe", b"\xef\xbb\xbfx = 1\n", b"x = " + b"(" * 9999, b""],
)
@pytest.mark.parametrize("name", [GENERATED, MODULAR, BASE])
def test_contents_that_are_no_source_are_findings(tree, content, name):
    (tree / name).write_bytes(content)
    for fix in (False, True):
        assert "MC199" not in codes(result(tree, fix=fix))
    assert result(tree).exit_code != 0 or name == GENERATED


@pytest.mark.parametrize("content", ["{", "(" * 5000, "-" * 5000 + "1", "{**" * 50 + "'\\d'"])
def test_a_table_of_names_that_is_no_source_is_a_finding_of_its_own(tree, content):
    (tree / "models/auto").mkdir()
    (tree / "models/auto/configuration_auto.py").write_text(f"CONFIG_MAPPING_NAMES = {content}\n")
    found = result(tree)
    assert found.exit_code == 2 and codes(found) == {"MC101"}
    assert {os.path.basename(one.location.path) for one in found.findings} == {"configuration_auto.py"}


@pytest.mark.parametrize(
    "banner", ["../../../etc/modular_x.py", "modular_\x1b[31m.py", "modular_x.py\0", "modular_" + "x" * 9000]
)
def test_a_forged_banner_leads_nowhere(tree, banner):
    line = (tree / GENERATED).read_text().split("\n")[1]
    (tree / "models/leaf/other.py").write_text("#\n" + line.replace("models/leaf/modular_leaf.py", banner) + "\n")
    assert codes(result(tree, fix=True)) <= {"MC403"}
    assert (tree / "models/leaf/other.py").exists()


# Settings

BOMBS = {
    "arrays in arrays": TABLE + "x = " + "[" * 400_000,
    "tables in tables": TABLE + "x = " + "{a=" * 200_000,
    "a key of many parts": TABLE + "a." * 300_000 + "a = 1\n",
    "a table of many parts": "[" + "a." * 300_000 + "a]\n" + TABLE,
    "many keys of many parts": TABLE + "".join(f"k{number}{'.a' * 100} = 1\n" for number in range(4_000)),
    "a number": TABLE + "workers = " + "9" * 900_000 + "\n",
    "another number": TABLE + "workers = 0x" + "f" * 900_000 + "\n",
    "a string": TABLE + 'package = "' + "a" * 900_000 + '"\n',
    "keys": TABLE + "".join(f"k{number} = 1\n" for number in range(70_000)),
    "tables": "[[a]]\n" * 150_000 + TABLE,
    "a hundred megabytes": "",
}


@pytest.mark.parametrize("name", ["pyproject.toml", "ruff.toml"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_settings_that_take_long_are_refused(tree, bomb, name):
    (tree / name).write_text(BOMBS[bomb] + "[tool.ruff]\n")
    if not BOMBS[bomb]:
        os.truncate(tree / name, 100_000_000)  # takes no space on disk
    (tree / GENERATED).unlink()
    found = result(tree)
    assert found.exit_code in (1, 2) and "MC199" not in codes(found)


# The cache


def test_a_cache_under_attack_changes_no_verdict(tree, tmp_path):
    (tmp_path / "private").write_text("precious\n")
    attacks: dict[str, Callable[[Path], None]] = {
        "a pipe": pipe,
        "a socket": in_use,
        "a folder": Path.mkdir,
        "a private file": lambda path: path.symlink_to(tmp_path / "private"),
        "a device": link_to("/dev/zero"),
        "too large": lambda path: path.write_bytes(b"") or os.truncate(path, 1 << 40),
        "another entry": lambda path: path.write_text(store.digest(b"{}") + "\n{}"),
        "no JSON": lambda path: path.write_text(store.digest(b"[" * 99999) + "\n" + "[" * 99999),
    }
    for label, attack in attacks.items():
        folder = tmp_path / label
        assert result(tree, cache=str(folder)).exit_code == 0
        for path in folder.iterdir():
            path.unlink()
            attack(path)
        (tree / GENERATED).write_text("x = 1\n")
        assert result(tree, cache=str(folder)).exit_code == 1, label
        git(tree, "checkout", "-q", ".")
        assert result(tree, cache=str(folder)).exit_code == 0, label
    assert (tmp_path / "private").read_text() == "precious\n"


def test_a_cache_folder_that_is_a_link_writes_nothing_into_the_tree(tree, tmp_path):
    (tmp_path / "cache").symlink_to(tree / "models")
    before = sorted(tree.rglob("*.py"))
    assert result(tree, cache=str(tmp_path / "cache")).exit_code == 0
    assert sorted(tree.rglob("*.py")) == before


# What happens during the run


@pytest.fixture
def then(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something once, between reading and writing."""
    original = Run.convert

    def arrange(happens: Callable[[], object]) -> None:
        def patched(self, *arguments, **options):
            conversions = original(self, *arguments, **options)
            monkeypatch.setattr(Run, "convert", original)
            happens()
            return conversions

        monkeypatch.setattr(Run, "convert", patched)

    return arrange


def test_a_folder_that_becomes_a_link_during_the_run_is_not_written_through(tree, tmp_path, then):
    outside = tmp_path / "outside"

    def swap() -> None:
        shutil.move(tree / "models/leaf", outside)
        (tree / "models/leaf").symlink_to(outside)

    (tree / GENERATED).write_text("x = 1\n")
    then(swap)
    assert result(tree, fix=True).exit_code == 2
    assert (outside / "modeling_leaf.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("name", [MODULAR, BASE])
def test_a_source_that_changes_during_the_run_is_noticed_by_the_next(tree, tmp_path, then, name):
    cache = str(tmp_path / "cache")
    (tree / GENERATED).write_text("x = 1\n")
    then(
        lambda: (tree / name).write_text((tree / name).read_text().replace("x + 1", "x + 2").replace("pass", "y = 1"))
    )
    result(tree, fix=True, cache=cache)
    warm, cold = result(tree, cache=cache), result(tree)
    assert warm.exit_code == cold.exit_code == 1
    assert warm.findings == cold.findings


# Programs of the tree
