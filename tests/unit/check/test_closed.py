"""No model goes unchecked in silence, whatever links and folders lie beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from modular_converter.check.run import CheckOptions, CheckResult, check
from tests.unit.trees import add, commit, fix, git


pytestmark = pytest.mark.skipif(os.name == "nt", reason="links and modes of POSIX")


@pytest.fixture
def stale(tree: Path) -> Path:
    """A tree in which the generated file of `leaf` is stale."""
    with open(tree / "models/leaf/modeling_leaf.py", "a") as file:
        file.write("# by hand\n")
    return tree


def result(tree: Path, *arguments: str, since: str | None = None) -> CheckResult:
    return check(CheckOptions(arguments or ("all",), root=str(tree), changed_since=since))


def codes(found: CheckResult) -> set[str]:
    return {finding.code for finding in found.findings}


def run_without_rights(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user to whom the modes of folders apply: root, too, without the capabilities against them."""
    command = [sys.executable, "-c", "from modular_converter.commands.check import main; main()", "--no-cache"]
    command += ["--root", str(tree), *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    return subprocess.run(command, capture_output=True, text=True, cwd=tree, check=False)


@pytest.mark.parametrize("target", ["loop", "x" * 300, "nowhere", "/dev/null", "loop/loop"])
def test_a_link_that_leads_nowhere_hides_nothing(stale, target):
    (stale / "models/leaf/loop").symlink_to(target)
    git(stale, "add", "-A")
    assert result(stale).exit_code == 1
    assert result(stale, since="HEAD").exit_code == 1
    assert result(stale, str(stale / "models/*/modular_*.py")).exit_code == 1


@pytest.mark.parametrize("target", ["loop", "modular_new.py", "nowhere", "/dev/null", "/dev/zero"])
def test_a_modular_file_that_is_such_a_link_is_an_error(tree, target):
    (tree / "models/new").mkdir()
    (tree / "models/new/modular_new.py").symlink_to(target)
    assert result(tree).exit_code == 2


@pytest.mark.parametrize(
    ("mode", "argument"), [(0o311, "all"), (0o000, "all"), (0o311, "models"), (0o311, "models/*/modular_*.py")]
)
def test_a_folder_that_cannot_be_listed_is_an_error(stale, mode, argument):
    locked = stale / "models/leaf"
    locked.chmod(mode)
    try:
        done = run_without_rights(stale, argument)
    finally:
        locked.chmod(0o755)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "models/leaf" in done.stderr and "cannot list this folder: Permission denied" in done.stderr


def test_a_link_into_a_folder_without_access_is_an_error_and_hides_nothing(stale):
    (stale / "locked/inner").mkdir(parents=True)
    (stale / "models/leaf/link").symlink_to(stale / "locked/inner")
    (stale / "locked").chmod(0o000)
    try:
        done = run_without_rights(stale)
    finally:
        (stale / "locked").chmod(0o755)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cannot list this folder" in done.stderr and "modeling_leaf.py" in done.stdout


@pytest.mark.parametrize("place", ["models/store/leaf", "store/leaf", "models/.store/deep/leaf", "store/group/leaf"])
def test_a_model_behind_a_link_in_the_project_is_checked(stale, place):
    (stale / place).parent.mkdir(parents=True)
    shutil.move(stale / "models/leaf", stale / place)
    if "group" in place:
        (stale / "models/group").symlink_to(stale / "store/group")
    else:
        (stale / "models/leaf").symlink_to(stale / place)
    assert result(stale).exit_code in (1, 2)
    assert any("leaf" in finding.location.path for finding in result(stale).findings)


def test_a_model_folder_is_checked_once_however_many_links_lead_to_it(stale):
    for name in ("alias", "again", "base/inner"):
        (stale / "models" / name).symlink_to(stale / "models/leaf")
    (stale / "models/leaf/above").symlink_to("..")
    (stale / "models/leaf/project").symlink_to("../..")
    (stale / "models/leaf/everything").symlink_to("/")
    found = result(stale)
    assert [os.path.basename(one.path) for one in found.conversions] == ["modular_heir.py", "modular_leaf.py"]
    assert found.exit_code == 1


def test_an_output_folder_belongs_to_all_folders_of_its_name(tree):
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\noutput-dir = "models/out"\n')
    (tree / "models/.store").mkdir()
    for name in ("heir", "leaf"):  # which of two folders is looked at first has depended on the hash seed
        shutil.move(tree / "models" / name, tree / "models/.store" / name)
        (tree / "models" / name).symlink_to(f".store/{name}")
    fix(tree)
    assert not result(tree).findings


@pytest.mark.parametrize("name", ["build", "dist", "node_modules", ".hidden"])
def test_a_model_with_the_name_of_an_output_folder_is_checked(tree, name):
    add(tree / "models", "new", "base").parent.rename(tree / "models" / name)
    found = result(tree)
    assert found.exit_code == 1 and codes(found) == {"MC402"}


ASIDE = ["build", "dist", "node_modules", ".venv", ".deep/er"]


def test_hidden_and_output_folders_that_git_ignores_are_not_searched(tree):
    for name in ASIDE:
        shutil.copytree(tree / "models", tree / name / "lib/models")
    (tree / ".gitignore").write_text("".join(f"/{name}\n" for name in ASIDE))
    assert len(result(tree, str(tree)).conversions) == 2


@pytest.mark.parametrize(
    "state", ["committed", "new", "committed and ignored", "a repository", "no git", "broken git"]
)
@pytest.mark.parametrize("name", ["build", ".deep/er", "__pycache__"])
def test_no_model_is_hidden_by_the_name_of_a_folder(tree, name, state):
    (tree / "models/setup.py").touch()
    place = tree / "models" / name / "family/leaf"
    shutil.copytree(tree / "models/leaf", place)
    (place / "modular_leaf.py").write_text("class LeafMLP:\n    x = 2\n")
    if state == "a repository":
        commit(place.parent, new=True)
    elif "committed" in state:
        commit(tree)
    if state == "committed and ignored":
        (tree / ".gitignore").write_text(f"{name}\n")
    if "git" in state:
        shutil.rmtree(tree / ".git")
    if state == "broken git":
        (tree / ".git").write_text("gitdir: nowhere\n")
    found = result(tree)
    assert found.exit_code == 1 and len(found.conversions) == 3
    assert [str(place / "modeling_leaf.py")] == [one.path for one in found.differences]


def test_a_virtual_environment_outside_of_git_is_not_searched(tree):
    shutil.rmtree(tree / ".git")
    for name in (".venv", "build"):
        shutil.copytree(tree / "models", tree / name / "lib/models")
        (tree / name / "pyvenv.cfg").touch()
    assert len(result(tree, str(tree)).conversions) == 2


def write_old(tree: Path, name: str, parent: str, extra: str = "") -> Path:
    """A model whose class `<Name>Old` inherits from the parent's."""
    path = tree / "models" / name / f"modular_{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"from ..{parent}.modeling_{parent} import {parent.title()}Old\n\n\n"
        f"class {name.title()}Old({parent.title()}Old):\n    {extra or 'pass'}\n"
    )
    return path


def test_no_file_is_built_on_a_text_that_is_never_written(tree, cache):
    """`ccc` is first converted on the old text of `bbb`, and fails on the new text; `ddd` stays as it is."""
    (tree / "models/aaa").mkdir()
    (tree / "models/aaa/modeling_aaa.py").write_text("class AaaX:\n    x = 1\n\n\nclass AaaOld:\n    b = 1\n")
    modular = write_old(tree, "bbb", "aaa")
    both = "from ..aaa.modeling_aaa import AaaX\n" + modular.read_text() + "\n\nclass BbbX(AaaX):\n    pass\n"
    modular.write_text(both)
    write_old(tree, "ccc", "bbb", "c = 1")
    ddd = write_old(tree, "ddd", "ccc", "d = 1").with_name("modeling_ddd.py")
    fix(tree)
    right, folder = ddd.read_text(), os.environ["MODULAR_CONVERTER_CACHE"]
    assert check(CheckOptions(root=str(tree), cache=folder)).exit_code == 0
    modular.write_text("from ..aaa.modeling_aaa import AaaX\n\n\nclass BbbX(AaaX):\n    pass\n")
    write_old(tree, "ccc", "bbb", "c = 2")
    warm, cold = (check(CheckOptions(root=str(tree), cache=one)) for one in (folder, None))
    assert warm.findings == cold.findings and codes(cold) == {"MC401", "MC105"}
    check(CheckOptions(root=str(tree), fix=True))
    assert ddd.read_text() == right


@pytest.mark.parametrize("first", ["heir", "leaf"])
def test_a_model_s_own_formatter_settings_hold_for_it_alone_and_always(tree, first):
    long = "        return {}\n".format(" + ".join(["x"] * 20))
    with open(tree / "models/base/modeling_base.py", "a") as file:
        file.write("\n    def long(self, x):\n" + long)
    (tree / "pyproject.toml").write_text("[tool.modular-converter]\n")
    (tree / "models" / first / "ruff.toml").write_text("line-length = 60\n")
    texts = {}
    for arguments in (("all",), ("heir",), ("leaf",)):
        assert check(CheckOptions(arguments, root=str(tree), fix=True)).exit_code == 0
        for name in ("heir", "leaf"):
            texts.setdefault(name, set()).add((tree / f"models/{name}/modeling_{name}.py").read_text())
            assert result(tree, name).exit_code == 0
        assert result(tree).exit_code == 0
    assert {name: [long in text for text in found] for name, found in texts.items()} == {
        "heir": [first != "heir"],
        "leaf": [first != "leaf"],
    }


HOOK = '#!/bin/sh\ntouch "{mark}"\n'


def hook(path: Path, mark: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HOOK.format(mark=mark))
    path.chmod(0o755)


@pytest.mark.parametrize("by", ["folder of hooks", "core.hooksPath", "submodule", "core.fsmonitor"])
def test_git_runs_no_hook_of_the_repository(tree, tmp_path, by):
    mark, top = tmp_path / "pwned", tree
    if by == "submodule":
        vendored = tmp_path / "vendored"
        add(vendored, "vend", "base")
        commit(vendored, new=True)
        git(tree, "submodule", "add", "-q", str(vendored), "models/vendored")
        commit(tree)
        hook(tree / ".git/modules/models/vendored/hooks/post-index-change", mark)
        top = tree / "models/vendored"
    elif by == "core.hooksPath":
        hook(tree / "hooks/post-index-change", mark)
        git(tree, "config", "core.hooksPath", "hooks")
    elif by == "core.fsmonitor":
        hook(tree / "monitor", mark)
        git(tree, "config", "core.fsmonitor", str(tree / "monitor"))
    hook(tree / ".git/hooks/post-index-change", mark)
    for path in tree.rglob("*.py"):
        os.utime(path)
    result(tree, since="HEAD")
    result(tree, str(top), since="HEAD")
    assert not mark.exists()
    git(top, "status")  # the hook works where git is asked plainly
    assert by == "core.fsmonitor" or mark.exists()


def test_the_index_of_the_repository_is_not_written(tree):
    fix(tree)
    commit(tree)
    git(tree, "update-index", "--split-index")
    before = {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()}
    for path in tree.rglob("*.py"):
        os.utime(path)
    assert result(tree, since="HEAD").exit_code == 0
    with open(tree / "models/leaf/modeling_leaf.py", "a") as file:
        file.write("# by hand\n")
    assert result(tree, since="HEAD").exit_code == 1
    assert {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()} == before
