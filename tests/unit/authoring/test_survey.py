"""What a tree says about its conventions, and which formatters it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.authoring.survey import Survey, survey
from modular_converter.authoring.tools_in_use import ToolsInUse, tools_in_use
from modular_converter.settings.load import profile_settings


def tree(folder: Path, files: dict[str, str]) -> Survey | None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return survey(str(folder), profile_settings())


MODEL = "from ..base import PreModel\nfrom .options_{0} import {1}Options\n\n\nclass {1}PreModel(PreModel):\n    pass\n\n\nclass {1}Layer:\n    pass\n"


def test_the_folder_with_the_most_models_counts(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        {
            "acme/__init__.py": "",
            "acme/nets/__init__.py": "",
            **{
                f"acme/nets/{one}/net_{one}.py": MODEL.format(one, cased)
                for one, cased in (("vlm", "VLM"), ("ox", "Ox"))
            },
            **{
                f"acme/nets/{one}/options_{one}.py": f"class {one.title()}Options:\n    pass\n"
                for one in ("vlm", "ox")
            },
            "acme/nets/ox/odd_ox.py": "class OxA:\n    pass\n\n\nclass OxB:\n    pass\n\n\nclass OxC:\n    pass\n",
            "tests/nets/vlm/test_net_vlm.py": "class VLMTest:\n    pass\n",
            ".hidden/a/net_a.py": "class A:\n    pass\n",
            "build/nets/a/net_a.py": "class A:\n    pass\n",
        },
    )
    assert found is not None
    assert found.root == str(tmp_path / "acme/nets") and found.models == ("ox", "vlm")
    assert (found.package, found.default_kind, found.kinds) == ("acme", "net", {"Options": "options"})
    assert found.unnamed == ("odd",) and found.config_suffix == "Options"
    assert found.cased == {"vlm": "VLM", "ox": "Ox"}


@pytest.mark.parametrize(
    ("folder", "package"),
    [("src/acme/models", "acme"), ("models", ""), ("acme/nets", "acme"), ("lib/python/acme/deep/nets", "acme")],
)
def test_a_package_without_init_is_the_topmost_folder(tmp_path: Path, folder: str, package: str) -> None:
    found = tree(tmp_path, {f"{folder}/ox/net_ox.py": "class OxLayer:\n    pass\n"})
    assert found is not None and found.package == package


@pytest.mark.parametrize("name", ["losses/poly_losses.py", "ox/ox.py", "ox/modular_ox.py", "ox/test_net_ox.py"])
def test_a_folder_whose_classes_have_other_names_is_no_model(tmp_path: Path, name: str) -> None:
    assert tree(tmp_path, {name: "class Poly:\n    pass\n"}) is None


BLACK = "repos:\n  - repo: https://github.com/psf/black\n    rev: v24.1.0  # pinned\n    hooks:\n      - id: black\n"
ISORT = "  - repo: https://github.com/PyCQA/isort\n    rev: 5.13.2\n    hooks:\n    - id: isort\n      args: [--profile, black]\n"
RUFF = "repos:\n- repo: https://x/ruff\n  rev: v0.14.10\n  hooks:\n  - id: ruff-check\n    args: [--fix, --select=I]\n  - id: ruff-format\n"


@pytest.mark.parametrize(
    ("hooks", "tables", "found"),
    [
        ("", "", ToolsInUse("none")),
        ("", "[tool.black]\nline-length = 100\n[tool.ruff]\n", ToolsInUse("black", line_length=100)),
        ("", "[tool.ruff]\nline-length = 99\n", ToolsInUse("ruff", line_length=99)),
        ("", "[tool.black]\n[tool.isort]\n", ToolsInUse("black", post_format=("isort",))),
        (BLACK, "", ToolsInUse("black", "24.1.0", has_table=False)),
        (RUFF, "[tool.black]\n[tool.ruff]\n", ToolsInUse("ruff", "0.14.10")),
        (
            BLACK + ISORT,
            "[tool.black]\n",
            ToolsInUse("black", "24.1.0", post_format=("isort==5.13.2",), unseen=("isort: [--profile, black]",)),
        ),
        ("repos:\n- repo: local\n  hooks:\n  - {id: black, args: [-q]}\n", "", ToolsInUse("black", has_table=False)),
        ("nonsense", "", ToolsInUse("none")),
    ],
)
def test_hooks_count_before_tables(tmp_path: Path, hooks: str, tables: str, found: ToolsInUse) -> None:
    (tmp_path / "pyproject.toml").write_text(tables)
    if hooks:
        (tmp_path / ".pre-commit-config.yaml").write_text(hooks)
    assert tools_in_use(str(tmp_path)) == found
