"""Settings of a stranger's tree: nothing private is printed, nothing is read without end, no source is overwritten."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from modular_converter.check.run import CheckOptions, check
from modular_converter.settings import toml_files
from modular_converter.settings.disk import FileTooLarge, read_regular
from modular_converter.settings.load import SettingsError, load_settings


posix = pytest.mark.skipif(os.name == "nt", reason="pipes and devices of POSIX")
NAMES = ("pyproject.toml", "ruff.toml", ".ruff.toml")


def ruff_extends(folder: Path, name: str, path: str) -> Path:
    table = "[tool.ruff]\n" if name == "pyproject.toml" else ""
    (folder / name).write_text(f"{table}extend = '{path}'\n")
    return folder / name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["$SECRET_FOLDER/secret.txt", "$SECRET_WORD", "${SECRET_WORD}", "a/$SECRET_WORD/b"])
def test_extend_prints_no_variable_and_no_file_behind_one(tree, tmp_path, monkeypatch, name, path):
    (tmp_path / "secret.txt").write_text("hunter2 is here\n")
    monkeypatch.setenv("SECRET_FOLDER", str(tmp_path))
    monkeypatch.setenv("SECRET_WORD", "hunter2")
    (tree / "pyproject.toml").unlink()
    ruff_extends(tree, name, path)
    (tree / "models/heir/modeling_heir.py").unlink()
    found = check(CheckOptions(root=str(tree)))
    assert found.exit_code == 2 and [one.code for one in found.findings] == ["MC116"]
    assert "hunter2" not in "".join(map(repr, found.findings))


@posix
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["/dev/zero", "/dev/full", "fifo", "models"])
def test_only_regular_files_are_extended(tree, name, target):
    (tree / "pyproject.toml").unlink()
    os.mkfifo(tree / "fifo")
    ruff_extends(tree, name, target)
    with pytest.raises(SettingsError, match="MC116"):
        load_settings(tree)


@pytest.mark.parametrize("limit", [9, 8])
def test_a_file_that_grows_while_it_is_read_is_read_whole_or_not(tmp_path, monkeypatch, limit):
    path, read = tmp_path / "ruff.toml", os.read
    path.write_bytes(b"1234567")

    def read_as_it_grows(handle, size):
        content = read(handle, size)
        if content == b"1234567":
            with path.open("ab") as more:
                more.write(b"89")
            content += read(handle, 1)
        return content

    monkeypatch.setattr(os, "read", read_as_it_grows)
    if limit == 8:
        with pytest.raises(FileTooLarge):
            read_regular(str(path), limit)
    else:
        assert read_regular(str(path), limit) == b"123456789"


@posix
@pytest.mark.parametrize("name", NAMES)
def test_settings_that_are_no_regular_file_are_not_read(tmp_path, name):
    os.mkfifo(tmp_path / name)
    load_settings(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    load_settings(tmp_path)


@posix
def test_the_release_is_read_from_a_regular_file(tmp_path):
    (tmp_path / "transformers").mkdir()
    os.mkfifo(tmp_path / "transformers/__init__.py")
    load_settings(tmp_path / "transformers")


@pytest.mark.parametrize("name", NAMES)
def test_settings_over_the_limit_are_refused(tmp_path, name):
    with open(tmp_path / name, "wb") as file:
        file.truncate(toml_files.MOST_BYTES + 1)  # takes no space on disk
    with pytest.raises(SettingsError, match="it is too large"):
        load_settings(tmp_path)


@pytest.mark.parametrize(
    "kind",
    ["modular", "modular_", "modular_{model}", "../modeling", "a/b", "a\\\\b", "a\\u0000b", ".", "1a", "a b", "a-b"],
)
@pytest.mark.parametrize("key", ["kinds = {{ MLP = {} }}", "default-kind = {}"])
def test_a_kind_names_a_file_beside_the_modular_file_and_never_that_file(tree, kind, key):
    (tree / "pyproject.toml").write_text("[tool.modular-converter]\n" + key.format(f'"{kind}"') + "\n")
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}
    found = check(CheckOptions(root=str(tree), fix=True))
    assert found.exit_code == 2 and [one.code for one in found.findings] == ["MC116"]
    assert {path: path.read_bytes() for path in tree.rglob("*.py")} == before


@pytest.mark.parametrize(
    "setting",
    [
        "max-file-bytes = 999999999999999999999",
        "workers = 999999999999999999999",
        "max-file-bytes = 0",
        "workers = -1",
        'package = "a\\u0000b"',
        'output-dir = "a\\u0000b"',
        'root = "a\\u0000b"',
        'kept-names = ["a\\u0000b"]',
        'banner-root = "a\\u0000b"',
        'auto-tables = ["/etc/passwd"]',
        'auto-tables = ["auto/../../../secret.py"]',
        'auto-tables = ["C:secret.py"]',
        'auto-tables = [""]',
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_with_its_place(tree, setting):
    (tree / "pyproject.toml").write_text(f"[tool.modular-converter]\n{setting}\n")
    found = check(CheckOptions(root=str(tree)))
    assert found.exit_code == 2
    assert [(one.code, one.location.line) for one in found.findings] == [("MC116", 2)]


@pytest.fixture
def private(tmp_path):
    """A file outside of the tree that is TOML, but no configuration of ruff."""
    (tmp_path / "credentials.toml").write_text('token = "hunter2"\n')
    return tmp_path / "credentials.toml"


@posix
@pytest.mark.parametrize("text", ['token = "hunter2"\n', "token = hunter2\n"], ids=["TOML", "no TOML"])
@pytest.mark.parametrize("how", ["extend", "relative", "chain", "linked extend", "ruff.toml", "pyproject.toml"])
def test_nothing_of_a_private_file_in_toml_is_printed(tree, private, text, how):
    private.write_text(f"# ruff\n{text}")
    (tree / "models/heir/modeling_heir.py").unlink()
    if how == "linked extend":
        (tree / private.name).symlink_to(private)
        ruff_extends(tree, "ruff.toml", private.name)
    elif how.endswith(".toml"):
        (tree / how).unlink(missing_ok=True)
        (tree / how).symlink_to(private)
    elif how == "chain":
        for number in range(12):
            ruff_extends(tree, f"{number}.toml", f"{number + 1}.toml" if number < 11 else str(private))
        ruff_extends(tree, "ruff.toml", "0.toml")
    else:
        ruff_extends(tree, "ruff.toml", str(private) if how == "extend" else f"../{private.name}")
    if how != "pyproject.toml":
        (tree / "pyproject.toml").write_text("[tool.modular-converter]\n")
    found = check(CheckOptions(root=str(tree)))
    assert found.exit_code == 2 and {one.code for one in found.findings} == {"MC116"}
    assert "hunter2" not in "".join(map(repr, found.findings))


def test_a_configuration_of_the_repository_above_the_project_is_extended(tree):
    (tree / "ruff.toml").write_text("line-length = 99\n")
    (tree / "pyproject.toml").unlink()
    (tree / "models/pyproject.toml").write_text("[tool.modular-converter]\n[tool.ruff]\nextend = '../ruff.toml'\n")
    assert [Path(path).name for path, _ in load_settings(tree / "models").ruff_extended] == ["ruff.toml"]


@pytest.mark.parametrize(
    "source", ["$SECRET_WORD", "${SECRET_WORD}", "${NO_SUCH_WORD}", "a\\u0000b", "a\\nb", "/proc"]
)
def test_source_folders_print_no_variable(tree, monkeypatch, source):
    monkeypatch.setenv("SECRET_WORD", "hunter2[")
    (tree / "pyproject.toml").write_text(f'[tool.modular-converter]\n[tool.ruff]\nsrc = ["{source}"]\n')
    (tree / "models/heir/modeling_heir.py").unlink()
    found = check(CheckOptions(root=str(tree)))
    assert found.exit_code in (1, 2) and "MC199" not in {one.code for one in found.findings}
    assert "hunter2" not in "".join(map(repr, found.findings))


@pytest.mark.parametrize("kind", ["Modular", "MODULAR_x", "m{model}", "modular{model}"])
def test_no_file_that_looks_like_a_modular_file_is_written(tree, kind):
    """On systems whose names have no case, `Modular_x.py` is `modular_x.py`; `m{model}` fits a model `odular_x`."""
    (tree / "pyproject.toml").write_text(
        f'[tool.modular-converter]\nruff-config = "profile"\nkinds = {{ MLP = "{kind}" }}\n'
    )
    shutil.copytree(tree / "models/leaf", tree / "models/odular_leaf")
    os.rename(tree / "models/odular_leaf/modular_leaf.py", tree / "models/odular_leaf/modular_odular_leaf.py")
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.name.lower().startswith("modular_")}
    check(CheckOptions(root=str(tree), fix=True))
    after = {path: path.read_bytes() for path in tree.rglob("*") if path.name.lower().startswith("modular_")}
    assert after == before
