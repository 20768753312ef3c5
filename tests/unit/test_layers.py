"""Imports point one way: each package has a floor of its own, imports point down, and no two files need each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_graph import ImportGraph


PACKAGE = Path(__file__).parents[2] / "modular_converter"
GRAPH = ImportGraph(PACKAGE)
FLOORS = {
    "modular_converter": (
        "version",
        "findings",
        "model",
        "facts",
        "rules",
        "settings",
        "files",
        "convert",
        "api",
        "__init__",
        "reporting",
        "graph",
        "git",
        "check",
        "provenance",
        "breaking",
        "marks",
        "authoring",
        "lsp",
        "commands",
        "parallel",
        "__main__",
    ),
    "modular_converter.settings": (
        "__init__",
        "disk",
        "values",
        "profiles",
        "toml_files",
        "load",
    ),
    "modular_converter.convert": (
        "__init__",
        "source",
        "inherit",
        "inline",
        "emit",
        "examine",
        "pipeline",
        "silence",
        "schedule",
        "batch",
    ),
    "modular_converter.check": (
        "__init__",
        "cache",
        "blame",
        "compare",
        "conversions",
        "tree_changes",
        "differences",
        "run",
    ),
    "modular_converter.parallel": (
        "errors",
        "private_names",
        "torch_private",
        "torch_switches",
        "modules",
        "transformers_private",
        "tested_versions",
        "kept_values",
        "layout",
        "lint",
        "styles",
        "trace",
        "plans",
        "int8",
        "solve",
        "tiny",
        "shard",
        "inference",
        "ranks",
        "proof",
        "pipeline",
        "choice",
        "source",
        "schedule",
        "engine",
        "costs",
        "advice",
        "tuning",
        "trainer",
        "api",
        "tables",
        "exports",
        "commands",
        "cli",
        "__init__",
    ),
    "modular_converter.parallel.solve": (
        "__init__",
        "axes",
        "flow",
        "operators",
        "follow",
        "choose",
        "write_rules",
        "derive",
        "cost",
        "experts",
    ),
    "modular_converter.parallel.engine": (
        "__init__",
        "base",
        "checkpoint",
        "arguments",
        "remote",
        "group",
        "stages",
    ),
}
"""Package that holds packages -> the files and packages directly in it, the lowest first."""
HEAVY = {"libcst", "torch", "transformers", "black", "isort"}
MAY_IMPORT = {
    "modular_converter.convert.emit.format_black": {"black"},
    "modular_converter.convert.emit.format_isort": {"isort"},
    "modular_converter.convert.source.rename": {"libcst"},
    "modular_converter.model.class_blocks": {"libcst"},
    "modular_converter.convert.inherit.rewrite": {"libcst"},
}


def test_every_package_has_a_floor() -> None:
    assert sorted(FLOORS) == GRAPH.parents()
    for package, floors in FLOORS.items():
        assert sorted(floors) == sorted(GRAPH.children(package)), package


@pytest.mark.parametrize("package", FLOORS)
def test_imports_point_down(package: str) -> None:
    floors = FLOORS[package]
    for upper, lower, files in GRAPH.between_children(package).edges.data("files"):
        assert floors.index(lower) < floors.index(upper), " imports ".join(files)


def test_no_circle_of_files() -> None:
    assert GRAPH.circles() == []


@pytest.mark.parametrize("package", FLOORS)
def test_no_circle_of_packages(package: str) -> None:
    assert GRAPH.circles_between_children(package) == []


def test_a_circle_is_seen_wherever_its_imports_stand(tmp_path: Path) -> None:
    texts = {
        "__init__.py": "",
        "a.py": "def late():\n    from tool.inner import b\n",
        "inner/__init__.py": "",
        "inner/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tool.c import C\n",
        "c.py": "import tool.a\nclass C: ...\n",
        "d.py": "from tool.c import C\n",
    }
    for name, text in texts.items():
        path = tmp_path / "tool" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = ImportGraph(tmp_path / "tool")
    assert graph.circles() == [{"tool.a", "tool.inner.b", "tool.c"}]
    assert graph.circles_between_children("tool") == [{"a", "inner", "c"}]


def test_the_core_imports_nothing_heavy() -> None:
    core = [name for name in GRAPH.files if ".parallel." not in name]
    heavy = {name: GRAPH.foreign(name) & HEAVY - MAY_IMPORT.get(name, set()) for name in core}
    assert core and not {name: found for name, found in heavy.items() if found}


def test_help_imports_only_click() -> None:
    code = "import sys; from modular_converter.commands.convert import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"rich", "libcst", "modular_converter.convert.pipeline", "modular_converter.settings.load"}


@pytest.mark.parametrize(
    ("body", "is_loaded"),
    [
        ("def f(self):\n        return super().f()", False),
        ("def f(self, **super_kwargs):\n        super().f()", True),
    ],
)
def test_only_merged_signatures_need_libcst(body: str, is_loaded: bool, tmp_path: Path) -> None:
    texts = {
        "old/modeling_old.py": "class OldMLP:\n    def f(self):\n        return 1\n",
        "new/modular_new.py": f"from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    {body}\n",
    }
    for name, text in texts.items():
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = (
        "import sys\nfrom modular_converter.convert.pipeline import convert\n"
        "from modular_converter.convert.source.library import Library\n"
        "from modular_converter.settings.load import profile_settings\n"
        "conversion = convert(sys.argv[1], Library(profile_settings()))\n"
        "assert conversion.files, conversion.findings\nprint('libcst' in sys.modules)"
    )
    modular = str(tmp_path / "models/new/modular_new.py")
    done = subprocess.run([sys.executable, "-c", code, modular], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(is_loaded)
