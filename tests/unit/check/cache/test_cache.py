"""The cache: a hit converts nothing, any input that changes is a miss, and damage is never trusted."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from modular_converter.check.cache import key
from modular_converter.check.cache.lookup import Cache
from modular_converter.check.run import CheckOptions, check
from modular_converter.convert.batch import Run
from modular_converter.convert.emit import formatters
from modular_converter.settings.load import load_settings


ROOT = Path(__file__).parents[4]
BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
HEIR = 'from ..{old}.modeling_{old} import {Old}MLP\n\n\nclass {New}MLP({Old}MLP):\n    pass\n\n\n__all__ = ["{New}MLP"]\n'


def run(tree: Path):
    return check(CheckOptions(root=str(tree), cache=str(tree / "cache")))


def remembered(tree: Path) -> Path:
    """The file of the cache that is about the tree."""
    (path,) = (tree / "cache").glob("*.json")
    return path


def hits(tree: Path) -> list[str]:
    cache = Cache(str(tree / "cache"), load_settings(tree / "models"))
    paths = sorted(str(path) for path in tree.rglob("modular_*.py"))
    return [os.path.basename(path)[8:-3] for path in paths if cache.look_up([path])]


def test_a_clean_run_is_remembered_and_a_hit_imports_no_pipeline(tree):
    assert hits(tree) == []
    assert run(tree).exit_code == 0
    assert hits(tree) == ["first", "second"]
    code = (
        "import sys; from modular_converter.commands.check import main\n"
        f"try: main(['--root', {str(tree)!r}])\nexcept SystemExit as end: print(end.code)\nprint(*sys.modules)"
    )
    environment = {**os.environ, "MODULAR_CONVERTER_CACHE": str(tree / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    exit_code, *loaded = done.stdout.split()
    assert exit_code == "0"
    heavy = ("convert.pipeline", "convert.batch", "convert.source", "convert.inherit", "git")
    assert not set(loaded) & {"libcst", "ruff", "rich", *(f"modular_converter.{name}" for name in heavy)}


@pytest.mark.parametrize(
    ("name", "missed"),
    [
        ("first/modular_first.py", "first"),
        ("first/modeling_first.py", "first second"),
        ("base/modeling_base.py", "first"),
        ("second/modular_second.py", "second"),
        ("second/modeling_second.py", "second"),
    ],
)
def test_a_file_that_changes_is_a_miss(tree, name, missed):
    run(tree)
    path = tree / "models" / name
    path.write_text(path.read_text().replace("MLP", "Mlp"))
    assert not set(hits(tree)) & set(missed.split())
    assert run(tree).exit_code in (1, 2)


def test_a_neighbours_neighbour_is_seen_through_the_generated_file(tree):
    run(tree)
    base = tree / "models/base/modeling_base.py"
    base.write_text(BASE.replace("x + 1", "x + 2"))
    result = run(tree)
    assert [os.path.basename(one.path) for one in result.differences] == ["modeling_first.py", "modeling_second.py"]


def test_a_check_of_current_files_starts_no_program(tree, monkeypatch):
    run(tree)
    formatters._ruff_version.cache_clear()  # as in another process

    def refuse(command, **options):
        raise AssertionError(f"started {command}")

    monkeypatch.setattr(subprocess, "run", refuse)
    result = run(tree)
    assert result.exit_code == 0 and len(result.conversions) == 2 and not result.converted


def test_settings_formatter_and_versions_are_part_of_the_key(tree, monkeypatch):
    run(tree)
    path = str(tree / "models/first/modular_first.py")
    settings = load_settings(tree / "models")
    folder = str(tree / "cache")
    assert Cache(folder, settings).look_up([path])
    assert Cache(folder, dataclasses.replace(settings, workers=7, strict=True)).look_up([path])
    assert not Cache(folder, dataclasses.replace(settings, kept_names=("first",))).look_up([path])
    others = {
        "formatter_stamp": lambda *arguments: "another ruff",
        "__version__": "9",
        "_own_files": lambda: [__file__],
    }
    for name, other in others.items():
        with monkeypatch.context() as patched:
            patched.setattr(key, name, other)
            assert not Cache(folder, settings).look_up([path]), name
    monkeypatch.setattr(sys, "version", "another Python")
    assert not Cache(folder, settings).look_up([path])


def test_every_file_of_the_tool_that_converts_is_part_of_the_key():
    package = ROOT / "modular_converter"
    own = {str(path) for path in package.rglob("*") if path.suffix in (".py", ".toml")}
    wing = {path for path in own if path.startswith(str(package / "parallel"))}
    wing -= {path for path in wing if path.startswith(str(package / "parallel" / "lint"))}
    assert set(key._own_files()) == own - wing
    assert str(package / "convert/pipeline.py") in own - wing


def test_of_a_pyproject_only_what_ruff_obeys_is_part_of_the_key(tree):
    own = "[tool.modular-converter]\n[tool.ruff]\nline-length = 100\n"
    (tree / "pyproject.toml").write_text(own)
    assert check(CheckOptions(root=str(tree), fix=True, cache=str(tree / "cache"))).exit_code == 0
    run(tree)
    for other in ('[project]\nname = "x"\n', "[tool.pytest]\nx = 1\n", "# a comment\n"):
        (tree / "pyproject.toml").write_text(other + own)
        assert hits(tree) == ["first", "second"]
    for other in ('[project]\nrequires-python = ">=3.12"\n', "[tool.ruff.format]\nindent-style = 'tab'\n"):
        (tree / "pyproject.toml").write_text(own + other)
        assert hits(tree) == []


def test_what_a_ruff_configuration_extends_is_part_of_the_key(tree):
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\n[tool.ruff]\nextend = "base.toml"\n')
    (tree / "base.toml").write_text("line-length = 100\n")
    assert check(CheckOptions(root=str(tree), fix=True, cache=str(tree / "cache"))).exit_code == 0
    run(tree)
    assert hits(tree) == ["first", "second"]
    (tree / "base.toml").write_text("line-length = 99\n")
    assert hits(tree) == []
    (tree / "base.toml").write_text('extend = "missing.toml"\n')
    assert hits(tree) == []


def test_what_is_known_is_converted_again_when_this_run_changes_what_it_was_made_from(tree):
    run(tree)
    base = tree / "models/base/modeling_base.py"
    base.write_text(BASE.replace("x + 1", "x + 2"))
    cache = str(tree / "cache")
    known = check(CheckOptions(root=str(tree), cache=cache)).differences
    assert [one.new for one in known] == [one.new for one in check(CheckOptions(root=str(tree))).differences]
    assert check(CheckOptions(root=str(tree), cache=cache, fix=True)).exit_code == 0
    assert hits(tree) == ["first", "second"]


def test_it_does_not_matter_which_command_has_filled_it(tree, monkeypatch):
    run(tree)
    monkeypatch.setattr(sys, "path", [str(tree), *sys.path])
    assert hits(tree) == ["first", "second"]


def test_a_package_that_is_found_elsewhere_is_a_miss(tree, tmp_path, monkeypatch):
    for place in ("one", "two"):
        lib = tmp_path / place / "lib"
        (lib / "models/base").mkdir(parents=True)
        for folder in (lib, lib / "models", lib / "models/base"):
            (folder / "__init__.py").write_text("")
        (lib / "models/base/modeling_base.py").write_text(BASE)
    modular = tree / "models/first/modular_first.py"
    modular.write_text(modular.read_text().replace("..base", "lib.models.base"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "one"), str(tmp_path / "two"), *sys.path])
    options = CheckOptions(root=str(tree), cache=str(tree / "cache"))
    assert check(options._replace(fix=True)).exit_code == 0
    check(options)
    assert hits(tree) == ["first", "second"]
    (tmp_path / "one/lib/__init__.py").unlink()  # a package with this file comes first, wherever it is
    assert hits(tree) == ["second"]
    (tmp_path / "one/lib/__init__.py").write_text("")
    assert hits(tree) == ["first", "second"]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "two"), *sys.path])
    assert "first" not in hits(tree)


def test_a_package_that_appears_in_the_checkout_is_a_miss(tree, tmp_path, monkeypatch):
    base = "models/base/modeling_base.py"
    lib = tmp_path / "installed/lib"
    (lib / base).parent.mkdir(parents=True)
    (lib / "__init__.py").touch()
    (lib / base).write_text(BASE)
    modular = tree / "models/first/modular_first.py"
    modular.write_text(modular.read_text().replace("..base", "lib.models.base"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "installed"), *sys.path])
    (tree / "pyproject.toml").touch()
    assert check(CheckOptions(root=str(tree), cache=str(tree / "cache"), fix=True)).exit_code == 0
    run(tree)
    assert hits(tree) == ["first", "second"]
    (tree / "src/lib").mkdir(parents=True)
    assert hits(tree) == ["first", "second"]
    (tree / "src/lib/__init__.py").touch()
    assert hits(tree) == ["second"]


def test_strict_runs_agree_with_conversions_about_what_dependents_see(tree):
    modular = tree / "models/first/modular_first.py"
    modular.write_text(modular.read_text().replace("    pass", "    extra = 1").replace("= [", '= ["Gone", '))
    result = check(CheckOptions(root=str(tree), strict=True))
    settings = dataclasses.replace(load_settings(tree / "models"), strict=True)
    converted = Run(settings).convert(sorted(str(path) for path in tree.rglob("modular_*.py")))
    assert [dict(one.files) for one in result.conversions] == [dict(one.files) for one in converted]
    assert converted[0].failed and "extra" not in "".join(converted[1].files.values())


def test_a_generated_file_that_differs_is_a_miss_until_it_is_put_right(tree):
    assert run(tree).exit_code == 0
    generated = tree / "models/second/modeling_second.py"
    text = generated.read_text()
    generated.write_text("x = 1\n")
    assert run(tree).exit_code == 1 and run(tree).exit_code == 1
    generated.write_text(text)
    assert hits(tree) == ["first", "second"]


EDITS = {
    "comment": lambda text: "# a note\n" + text,
    "body": lambda text: text.replace("x + 1", "x + 2"),
    "signature": lambda text: text.replace("forward(self, x)", "forward(self, x, scale=1)"),
    "new class": lambda text: text + "\n\nclass BaseNorm(BaseMLP):\n    pass\n",
    "removed class": lambda text: "from torch import nn\n",
    "renamed attribute": lambda text: text.replace("def forward", "def apply"),
    "import": lambda text: "import math\n" + text.replace("x + 1", "math.sqrt(x)"),
    "no Python": lambda text: text + "class (\n",
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("edited", ["base/modeling_base.py", "first/modeling_first.py", "first/modular_first.py"])
def test_after_an_edit_it_gives_what_a_run_without_it_gives(tree, tmp_path, name, edited):
    run(tree)
    path = tree / "models" / edited
    path.write_text(EDITS[name](path.read_text()))
    plain = tmp_path / "plain" / "tree"
    shutil.copytree(tree, plain)
    for fix in (False, True, False):
        seen = []
        for root, cache in ((tree, str(tree / "cache")), (plain, None)):
            result = check(CheckOptions(root=str(root), cache=cache, fix=fix))
            texts = {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*.py"))}
            said = [str(one).replace(str(root), "") for one in result.findings]
            seen.append((result.exit_code, said, [one.new for one in result.differences], texts))
        assert seen[0] == seen[1], fix
