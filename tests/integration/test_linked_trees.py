"""Trees with links, devices, pipes and read-only files: nothing outside of the root is read or written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.integration.small_library import BASE, add
from tests.integration.test_trees import (
    EVERY,
    GENERATED,
    MODULAR,
    NEIGHBOUR,
    SECRET,
    check,
    convert,
    files,
    fix,
    make_stale,
    posix,
)


pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


@posix
@EVERY
@pytest.mark.parametrize("name", [MODULAR, NEIGHBOUR, GENERATED])
def test_a_link_out_of_the_root_is_neither_read_nor_written_through(tree, secret, command, name):
    make_stale(tree)
    path = tree / "models" / name
    path.unlink()
    path.symlink_to(secret)
    results = [command(tree), convert(tree, "--diff", "all"), check(tree, "--format", "github")]
    for result in results:
        assert result.exit_code == 2, result.output
        assert "MC114" in result.output and "hunter2" not in result.output
    assert secret.read_text() == SECRET and path.is_symlink()
    assert not any(b"hunter2" in text for one, text in files(tree).items() if one != f"models/{name}")


@posix
@pytest.mark.parametrize(
    "arrange",
    [
        lambda tree, secret: (tree / "ruff.toml").symlink_to(secret),
        lambda tree, secret: (tree / "ruff.toml").write_text(f'extend = "{secret}"\n'),
        lambda tree, secret: (tree / "pyproject.toml").symlink_to(secret),
    ],
    ids=["ruff.toml", "extend", "pyproject.toml"],
)
def test_settings_that_lead_to_a_file_of_another_kind_do_not_show_it(tree, secret, arrange):
    secret.write_text("[tool.modular-converter]\nTOKEN hunter2\n")
    (tree / "pyproject.toml").unlink()
    arrange(tree, secret)
    for result in (check(tree), check(tree, "--format", "json"), convert(tree)):
        assert result.exit_code == 2 and "MC116" in result.output, result.output
        assert "hunter2" not in result.output


@posix
def test_settings_that_are_a_device_are_none(tree):
    (tree / "pyproject.toml").unlink()
    (tree / "pyproject.toml").symlink_to("/dev/zero")
    assert check(tree, "--write").exit_code == 0


@posix
@EVERY
def test_a_link_to_a_device_that_never_ends(tree, command):
    assert check(tree).exit_code == 0  # so that the cache knows the file
    path = tree / "models" / GENERATED
    path.unlink()
    path.symlink_to("/dev/zero")
    result = command(tree)
    assert result.exit_code == 2 and "MC114" in result.output


@posix
@EVERY
@pytest.mark.parametrize("name", [MODULAR, NEIGHBOUR])
def test_a_pipe_that_never_ends(tree, command, name):
    path = tree / "models" / name
    path.unlink()
    os.mkfifo(path)
    result = command(tree)
    said = "not a regular file" if name == MODULAR else "does not exist"
    assert result.exit_code == 2 and said in result.output, result.output


@EVERY
@pytest.mark.parametrize("key", ["root", "output-dir", "ruff-config"])
@pytest.mark.parametrize("value", ["/", "..", "../elsewhere"])
def test_settings_do_not_lead_out_of_the_project(tree, command, key, value):
    (tree / "pyproject.toml").write_text(f'[tool.modular-converter]\n{key} = "{value}"\n')
    result = command(tree)
    assert result.exit_code == 2 and f"setting `{key}` leads out of" in result.output, result.output


@posix
def test_a_link_does_not_widen_the_root(tree, secret):
    (tree / "all").symlink_to("/")
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\nroot = "all"\n')
    assert "setting `root` leads out of" in check(tree).output


@posix
@EVERY
def test_a_model_folder_that_is_a_link_out_of_the_root(tree, tmp_path, command):
    outside = tmp_path / "outside"
    add(outside, "fremd", "base")
    (tree / "models/fremd").symlink_to(outside / "fremd")
    before = files(outside)
    named = str(tree / "models/fremd/modular_fremd.py")
    for arguments in ([], [named]):
        result = command(tree, *arguments) if command is not fix else check(tree, "--write", *arguments)
        assert result.exit_code == (1 if command is check else 2), result.output
        assert ("MC402" if command is check else "MC114") in result.output
        assert files(outside) == before


@posix
def test_links_to_files_of_the_same_name_are_read_as_build_tools_lay_them_out(tree, tmp_path):
    store = tmp_path / "store"
    shutil.move(tree / "models", store)
    for path in sorted(store.rglob("*.py")):
        link = tree / "models" / path.relative_to(store)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    assert check(tree).exit_code == 0
    (store / NEIGHBOUR).write_text(BASE.replace("x + 1", "x + 2"))
    assert check(tree).exit_code == 1
    before = files(store)
    result = fix(tree)
    assert result.exit_code == 2 and "MC114" in result.output
    assert files(store) == before


@posix
@pytest.mark.parametrize("command", [convert, fix], ids=["convert", "fix"])
def test_a_read_only_file_is_kept_and_stops_no_other(tree, command):
    make_stale(tree)
    path = tree / "models" / GENERATED
    before = path.read_bytes()
    path.chmod(0o444)
    result = command(tree)
    assert result.exit_code == 2 and "modeling_size.py:1:1: error MC113 cannot write this file: it is read-only" in (
        result.output
    )
    assert path.read_bytes() == before
    assert "x + 2" in (tree / "models/größe/modeling_größe.py").read_text(encoding="utf-8")


def test_an_installed_package_is_checked_but_never_written(tree, tmp_path):
    make_stale(tree)
    installed = tmp_path / "lib/site-packages/pack"
    shutil.copytree(tree / "models", installed / "models")
    before = files(installed)
    assert check(installed).exit_code == 1
    for result in (fix(installed), convert(installed)):
        assert result.exit_code == 2 and "MC113" in result.output and "an installed package" in result.output
    assert files(installed) == before
