"""What a tree says about its conventions, and which formatters it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.authoring.survey import Survey, ToolsInUse, survey, survey_files, tools_in_use
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


def test_a_folder_that_holds_no_model_by_the_settings_is_not_counted(tmp_path: Path) -> None:
    names = {"ox": "Ox", "auto": "Auto"}
    found = tree(tmp_path, {f"acme/nets/{one}/net_{one}.py": MODEL.format(one, cased) for one, cased in names.items()})
    assert found is not None and found.models == ("ox",)


@pytest.mark.parametrize("name", ["losses/poly_losses.py", "ox/ox.py", "ox/modular_ox.py", "ox/test_net_ox.py"])
def test_a_folder_whose_classes_have_other_names_is_no_model(tmp_path: Path, name: str) -> None:
    assert tree(tmp_path, {name: "class Poly:\n    pass\n"}) is None


@pytest.mark.parametrize(
    ("file", "kind"),
    [("ox_net.py", "{model}_net"), ("net_ox_fast.py", "net_{model}_fast"), ("net_ox.py", "net")],
)
def test_a_kind_says_where_the_name_of_the_model_stands(tmp_path: Path, file: str, kind: str) -> None:
    found = tree(tmp_path, {f"nets/ox/{file}": "class OxLayer:\n    pass\n", "a/b_c/b_c_d.py": "", "x/y/z_y.py": ""})
    assert found is not None and (found.default_kind, found.models) == (kind, ("ox",))


def flat(folder: Path, files: dict[str, str]) -> Survey | None:
    assert tree(folder, files) is None
    return survey_files(str(folder), profile_settings())


NET = "from .base import Base\n\n\nclass {0}Net(Base):\n    pass\n\n\nclass {0}Args:\n    pass\n"


def test_models_of_one_folder_are_found_by_the_classes_that_they_share(tmp_path: Path) -> None:
    nets = {f"acme/nets/{name.lower()}.py": NET.format(name) for name in ("Ox", "VLM", "Yak")}
    others = {"acme/nets/base.py": "class BaseNet:\n    pass\n", "acme/nets/tools.py": "class Tool:\n    pass\n"}
    found = flat(tmp_path, {**nets, **others, "acme/nets/test_ox.py": NET.format("Ox"), "acme/nets/__init__.py": ""})
    assert found is not None and found.root == str(tmp_path / "acme/nets")
    assert (found.layout, found.default_kind, found.models) == ("files", "{model}", ("ox", "vlm", "yak"))
    assert found.no_models == ("base", "tools") and found.config_suffix == "Args" and found.cased["vlm"] == "VLM"


def test_models_of_one_folder_may_not_say_their_names(tmp_path: Path) -> None:
    found = flat(tmp_path, {f"lm/models/{name}.py": NET.format("") for name in ("ox", "yak", "emu")})
    assert found is not None and found.models == ("emu", "ox", "yak") and found.cased == {}


def test_models_of_one_folder_may_have_several_files(tmp_path: Path) -> None:
    models = {
        f"nets/net_{name.lower()}.py": f"class {name}Net:\n    pass\n\n\nclass {name}A:\n    pass\n"
        for name in ("Ox", "Yak")
    }
    settings = {f"nets/settings_{name.lower()}.py": f"class {name}Settings:\n    pass\n" for name in ("Ox", "Yak")}
    found = flat(tmp_path, {**models, **settings})
    assert found is not None and (found.default_kind, found.kinds) == ("net", {"Settings": "settings"})
    assert found.config_suffix == "Settings" and found.no_models == ()


CIRCLE = "from . import emu, ox, yak\nfrom .emu import EmuNet\nfrom .ox import OxNet\nfrom .yak import YakNet\n\n\n"


@pytest.mark.parametrize(
    "files",
    [
        {"acme/ox.py": "class OxNet:\n    pass\n"},  # one is no convention
        {"acme/ox.py": "class OxNet:\n    pass\n", "acme/yak.py": "class YakShop:\n    pass\n"},
        {"acme/ox.py": "class Ox:\n    pass\n", "acme/yak.py": "class Yak:\n    pass\n"},
        {"acme/ox.py": "", "acme/yak.py": ""},
        {f"acme/{one}.py": CIRCLE + f"class {one.title()}Net:\n    pass\n" for one in ("ox", "yak", "emu")},
    ],
)
def test_files_without_a_class_in_common_are_no_models(tmp_path: Path, files: dict[str, str]) -> None:
    assert flat(tmp_path, files) is None


def test_a_modular_file_tells_that_the_one_file_beside_it_is_a_model(tmp_path: Path) -> None:
    found = flat(tmp_path, {"acme/ox.py": "class OxNet:\n    pass\n", "acme/modular_yak.py": ""})
    assert found is not None and found.models == ("ox",)


def test_a_project_within_the_project_has_its_own_tables_and_the_hooks_above(tmp_path: Path) -> None:
    (tmp_path / "sub" / "nets").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.black]\nline-length = 70\n")
    (tmp_path / "sub" / "pyproject.toml").write_text("[tool.black]\nline-length = 90\n")
    (tmp_path / "sub" / "setup.cfg").write_text("[isort]\nprofile = black\n")
    (tmp_path / ".pre-commit-config.yaml").write_text(BLACK)
    for project in (tmp_path, tmp_path / "sub"):
        found = tools_in_use(str(project), str(tmp_path / "sub" / "nets"))
        assert found == ToolsInUse("black", "24.1.0", line_length=90, post_format=("isort",))


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
