"""`modular-convert init`: what it tells of a project, and the settings that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.commands.subcommands import SUBCOMMANDS


HEADER = "# (c) Acme\n# All rights.\n\n"
NET = HEADER + "from ...base import BaseNet\n\n\nclass {0}Layer:\n    pass\n\n\nclass {0}Net(BaseNet):\n    pass\n"
SIZES = HEADER + "\nclass {0}Sizes:\n    width = 1\n"
FILES = {
    "acme/__init__.py": "",
    "acme/base.py": "class BaseNet:\n    pass\n",
    "acme/nets/__init__.py": "",
    **{f"acme/nets/{one}/__init__.py": "" for one in ("big_ox", "yak")},
    "acme/nets/big_ox/net_big_ox.py": NET.format("BigOX"),
    "acme/nets/big_ox/sizes_big_ox.py": SIZES.format("BigOX"),
    "acme/nets/yak/net_yak.py": NET.format("Yak"),
    "acme/nets/yak/sizes_yak.py": SIZES.format("Yak"),
    "pyproject.toml": "[tool.ruff]\nline-length = 100\n",
}


def plant(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    plant(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str) -> Result:
    return CliRunner().invoke(SUBCOMMANDS["init"], arguments)


ROWS = """\
package        acme
models         acme/nets: 2 models (big_ox, yak)
files          `net_<model>.py`; `sizes_<model>.py` for classes named …Sizes
configuration  no file of its own
names          big_ox is BigOX
base class     BaseNet
formatter      ruff, line length 100
header         # (c) Acme
"""
TABLE = """\
[tool.modular-converter]
package = "acme"
root = "acme/nets"
formatter-version = ""
default-kind = "net"
model-base = "BaseNet"
license-header = "# (c) Acme\\n# All rights."

[tool.modular-converter.kinds]
"Sizes" = "sizes"
"""
ENDS = """\
generated files begin with
    # This file was automatically generated from acme/nets/MODEL/modular_MODEL.py.
    # Do not edit it, since it is generated again: change modular_MODEL.py, and run `modular-convert`.
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_settings_of_a_project_are_found_and_added(end: str, acme: Path) -> None:
    plant(acme, {"pyproject.toml": FILES["pyproject.toml"].replace("\n", end)})
    done = init()
    said = f"settings       pyproject.toml: [tool.modular-converter] is added\n\n{TABLE}\n"
    formatted = "unchanged by the formatter: 4 of 4 files\n"
    assert (done.exit_code, done.output) == (0, ROWS + said + ENDS + formatted)
    text = (acme / "pyproject.toml").read_bytes().decode()
    assert text == f"{FILES['pyproject.toml']}\n{TABLE}".replace("\n", end)
    again = init()
    kept = f"settings       pyproject.toml has a table [tool.modular-converter]: nothing is written. It would be:\n\n{TABLE}"
    assert (again.exit_code, again.output) == (1, ROWS + kept)
    assert (acme / "pyproject.toml").read_bytes().decode() == text


HOOK = """\
repos:
- repo: https://github.com/astral-sh/ruff-pre-commit
  rev: v0.5.0
  hooks:
  - id: ruff-format
    args: [--line-length, '90']
"""


def test_a_formatter_that_only_a_hook_names_gets_a_table(acme: Path) -> None:
    (acme / "pyproject.toml").unlink()
    plant(acme, {".pre-commit-config.yaml": HOOK})
    done = init("--dry-run")
    table = TABLE.replace('formatter-version = ""', 'formatter-version = "0.5.0"')
    assert done.exit_code == 0 and done.output.endswith(f"\n\n[tool.ruff]\nline-length = 88\n\n{table}")
    assert "generated files begin with" not in done.output and not (acme / "pyproject.toml").exists()


def test_a_project_without_a_formatter_gets_none(acme: Path) -> None:
    (acme / "pyproject.toml").unlink()
    done = init()
    table = TABLE.replace('formatter-version = ""', 'formatter = "none"')
    assert done.exit_code == 0 and "pyproject.toml: [tool.modular-converter] is new\n" in done.output
    assert (acme / "pyproject.toml").read_text() == table


def test_what_a_project_has_beside_is_told(acme: Path) -> None:
    plant(
        acme,
        {".pre-commit-config.yaml": HOOK, "acme/nets/yak/sizes_yak.py": SIZES.format("Yak").replace("    ", "  ")},
    )
    plant(acme, {name.replace("acme", "bolt"): text for name, text in FILES.items() if "/" in name})
    for number in range(4):
        plant(acme, {f"acme/nets/ox{number}/net_ox{number}.py": NET.format(f"Ox{number}")})
    done = init("--dry-run")
    for said in (
        "models         acme/nets: 6 models (big_ox, ox0, ox1, ox2, …)\n",
        "               bolt/nets holds models, too: put a pyproject.toml above it, and run `modular-convert init` there\n",
        "formatter      ruff 0.5.0, line length 100\n",
        "               options of a hook are not seen, write them into pyproject.toml: ruff-format: [--line-length, '90']\n",
        '\nformatter-version = "0.5.0"\n',
    ):
        assert said in done.output
    (acme / ".pre-commit-config.yaml").unlink()
    done = init()
    assert "unchanged by the formatter: 7 of 8 files\n    not acme/nets/yak/sizes_yak.py: `modular" in done.output


FLAT = {
    "acme/__init__.py": "",
    "acme/nets/__init__.py": "",
    "acme/nets/common.py": "def scaled(x):\n    return x\n",
    "acme/nets/ox.py": "class OxConfig:\n    pass\n\n\nclass OxNet:\n    config: OxConfig\n",
    "acme/nets/yak.py": "class YakConfig:\n    pass\n\n\nclass YakNet:\n    config: YakConfig\n",
    "pyproject.toml": "[tool.black]\n\n[tool.isort]\n",
}


def test_a_folder_with_a_file_for_each_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, FLAT)
    monkeypatch.chdir(tmp_path)
    done = init("--dry-run")
    assert done.exit_code == 0, done.output
    for said in (
        "               in one folder, without common, which are no models\n",
        "names          as the folders: `big_bird` is `BigBird`\n",
        "base class     none\n",
        "formatter      black, then isort\n",
        "header         none\n",
        '\nformatter = "black"\npost-format = ["isort"]\nlayout = "files"\n',
        '\nno-models = ["common"]\n',
    ):
        assert said in done.output, done.output
    assert "formatter-version" not in done.output and "license-header" not in done.output


def test_a_project_without_models_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = init()
    assert done.exit_code == 2 and "models" in done.output and not (tmp_path / "pyproject.toml").exists()
