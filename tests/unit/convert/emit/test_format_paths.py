"""Paths that ruff is told of: of any bytes, and never an option."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.format_ruff import _place
from modular_converter.findings import ConversionError
from modular_converter.settings.load import load_settings, profile_settings


pytestmark = pytest.mark.usefixtures("private_temporary_folder")


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
@pytest.mark.parametrize("checkout", ["p\udcff", "a\nb", "plain"])
def test_a_path_may_hold_any_bytes(tmp_path: pathlib.Path, checkout: str) -> None:
    """Also the source roots: they decide that `ours` is sorted as our own package."""
    text = "import ours\nimport torch\nfrom mine import x\nprint(ours, torch, x, missing)\n"
    root = tmp_path / checkout
    (root / "src/ours").mkdir(parents=True)
    (root / "ruff.toml").write_text('src = ["src"]\n[lint]\nselect = ["I", "F"]\n')
    name = str(root / "models/f\udcff" / "x\n.py")
    result = format_files({name: text, "b.py": "y  =  1\n"}, load_settings(root))
    formatted = "import torch\nfrom mine import x\n\nimport ours\n\nprint(ours, torch, x, missing)\n"
    assert result.texts == {name: formatted, "b.py": "y = 1\n"}
    assert [found.name for found in result.undefined[name]] == ["missing"] and not result.failures


@pytest.mark.parametrize(("depth", "is_ours"), [(0, False), (1, False), (2, True)])
def test_the_package_around_a_file_is_sorted_as_our_own(tmp_path: pathlib.Path, depth: int, is_ours: bool) -> None:
    """No source root names it: only the `__init__.py` of each folder does, from the file upwards."""
    (tmp_path / "deep/ours/models").mkdir(parents=True)
    (tmp_path / "ruff.toml").write_text('src = []\n[lint]\nselect = ["I"]\n')
    for folder in ("deep/ours/models", "deep/ours")[:depth]:
        (tmp_path / folder / "__init__.py").touch()
    name = str(tmp_path / "deep/ours/models/x.py")
    text = format_files({name: "import ours\nimport torch\n"}, load_settings(tmp_path)).texts[name]
    assert text == ("import torch\n\nimport ours\n" if is_ours else "import ours\nimport torch\n")


@pytest.mark.parametrize("folder", ["-x", "@x", "--config=x", "a b", "#x", "*"])
def test_a_folder_is_no_option_of_ruff(tmp_path: pathlib.Path, folder: str) -> None:
    (tmp_path / "ruff.toml").write_text("")
    name = str(tmp_path / folder / "x.py")
    assert format_files({name: "y  =  1\n"}, load_settings(tmp_path)).texts == {name: "y = 1\n"}


@pytest.mark.parametrize("formatter", ["ruff", "black", "none"])
def test_a_text_that_is_no_utf8_stops_no_other(formatter: str) -> None:
    """A banner quotes a path, which may hold any bytes."""
    result = format_files(
        {"bad.py": "# \udcff\n", "good.py": "x = 1\n"}, dataclasses.replace(profile_settings(), formatter=formatter)
    )
    assert result.texts == {"bad.py": "# \udcff\n", "good.py": "x = 1\n"}
    assert {name: found.code for name, found in result.failures.items()} == {"bad.py": "MC102"}


def test_two_files_with_one_name_in_the_tree_are_an_error() -> None:
    with pytest.raises(ConversionError, match="one name in its temporary tree"):
        format_files({"x\n.py": "x = 1\n", "x\U0010000a.py": "x = 1\n"}, profile_settings())


def test_a_tree_that_cannot_be_written_is_an_error(tmp_path: pathlib.Path, private_temporary_folder) -> None:
    name = str(tmp_path.joinpath(*["deep" * 50] * 21, "x.py"))
    with pytest.raises(ConversionError, match="temporary tree cannot be written"):
        format_files({name: "x = 1\n"}, profile_settings())
    assert not list(private_temporary_folder.iterdir())


@pytest.mark.parametrize(
    ("path", "base", "place"),
    [
        ("/a/b/c.py", "/a", "b/c.py"),
        ("/a/b/c.py", "/a/b", "c.py"),
        ("/a/b/c.py", "/d", "a/b/c.py"),  # never above the tree
        ("/a/b/c.py", "/a/bb", "a/b/c.py"),
        ("/a/b/c.py", "", "a/b/c.py"),
    ],
)
def test_a_text_lies_inside_the_tree(path: str, base: str, place: str) -> None:
    assert _place(path, base) == place
