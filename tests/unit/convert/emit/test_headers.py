"""The banner and the licence header of a private library."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter import convert_file
from modular_converter.files.write import is_generated
from modular_converter.settings.load import SettingsError, load_settings


NEIGHBOUR = "from torch import nn\n\n\nclass OldMLP(nn.Module):\n    pass\n"
OLD = f"# Copyright Old.\n\n{NEIGHBOUR}"
NEW = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    pass\n"
BANNER = "# acme: This file was automatically generated from {path}.\\n# Edit {name}."


def generated(root: Path, settings: str, *, modular: str = NEW, old: str = OLD) -> str:
    files = {
        "pyproject.toml": f'[tool.modular-converter]\nruff-config = "profile"\n{settings}\n',
        "acme/models/old/modeling_old.py": old,
        "acme/__init__.py": "",
        "acme/models/new/modular_new.py": modular,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    [text] = convert_file(root / "acme/models/new/modular_new.py").files.values()
    return text


def test_a_banner_of_ones_own_is_recognised(tmp_path: Path) -> None:
    text = generated(tmp_path, f'banner = "{BANNER}"')
    place = "acme/models/new/modular_new.py"
    assert text.startswith(
        f"# acme: This file was automatically generated from {place}.\n# Edit modular_new.py.\nfrom torch"
    )
    assert is_generated(text) == place


@pytest.mark.parametrize(
    ("value", "modular", "expected"),
    [
        ("neighbour", NEW, "# Copyright Old.\n\nfrom torch"),
        ("neighbour", f"# Copyright New.\n\n{NEW}", "# Copyright New.\n\n# Copyright Old.\n\nfrom torch"),
        ("neighbour", f"# Copyright Old.\n\n{NEW}", "# Copyright Old.\n\nfrom torch"),
        ("# Copyright Acme.", NEW, "# Copyright Acme.\n\nfrom torch"),
        ("# Copyright Acme.", f"# Copyright New.\n\n{NEW}", "# Copyright New.\n\nfrom torch"),
        ("", NEW, "from torch"),
    ],
)
def test_the_header_is_kept_or_given(tmp_path: Path, value: str, modular: str, expected: str) -> None:
    text = generated(tmp_path, f'banner = "{BANNER}"\nlicense-header = "{value}"', modular=modular)
    assert text.split("modular_new.py.\n")[2].startswith(expected)


@pytest.mark.parametrize("banner", ["", BANNER])
def test_the_banner_of_a_neighbour_is_no_header(tmp_path: Path, banner: str) -> None:
    first = generated(tmp_path, f'banner = "{banner}"', old=OLD)
    header = "# Copyright Old.\n# Licence.\n\n"
    old = first.partition("from torch")[0] + header + NEIGHBOUR
    text = generated(tmp_path, f'banner = "{banner}"\nlicense-header = "neighbour"', old=old)
    assert text == first.replace("from torch", f"{header}from torch", 1)


@pytest.mark.parametrize(
    "setting",
    [
        'banner = "import os"',
        'banner = "# nothing"',
        'license-header = "import os"',
        'license-header = "# a\\rimport os"',
        "banner = 3",
    ],
)
def test_only_comments_stand_on_top(tmp_path: Path, setting: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.modular-converter]\n{setting}\n")
    with pytest.raises(SettingsError, match="must"):
        load_settings(tmp_path)


def test_a_package_that_is_missing_is_named_with_its_cure(tmp_path: Path) -> None:
    path = tmp_path / "models/new/modular_new.py"
    path.parent.mkdir(parents=True)
    path.write_text(NEW.replace("..old", "no_such_base.models.old"))
    [finding] = convert_file(path).findings
    assert finding.code == "MC104" and "no package `no_such_base` in this environment" in finding.message
    assert "pip install no_such_base" in finding.help
    assert 'additional_dependencies: ["no_such_base"]' in finding.help
