"""Imports of the files beside a file: absolute ones are worked with as relative ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import (
    folder_name,
    in_own_terms,
    own_folder_name,
    with_absolute_imports,
)
from modular_converter.model.index import index_module
from modular_converter.settings.load import load_settings


TEXT = '''\
import acme.nets.tern.helpers
from acme.nets.tern.configuration_tern import TernConfig
from acme.nets.crow.modeling_crow import Crow
from acme.nets.ternary.modeling_ternary import Ternary


def build():
    """from acme.nets.tern.configuration_tern import TernConfig"""
    from acme.nets.tern.helpers import tern_helper; return tern_helper
'''


@pytest.fixture
def library(tmp_path: Path) -> Library:
    (tmp_path / "acme" / "nets" / "tern").mkdir(parents=True)
    (tmp_path / "acme" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\npackage = "acme"\nroot = "acme/nets"\n')
    return Library(load_settings(tmp_path))


def test_own_imports_become_relative_and_absolute_again(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "acme" / "nets" / "tern"
    module = index_module(TEXT, str(folder / "modeling_tern.py"))
    assert own_folder_name(module, library) == folder_name(str(folder), library) == "acme.nets.tern"
    changed = in_own_terms(module, library)
    assert [name.module for one in changed.statements for name in one.imports] == [
        "acme.nets.tern.helpers",
        ".configuration_tern",
        "acme.nets.crow.modeling_crow",
        "acme.nets.ternary.modeling_ternary",
    ]
    text = "".join(one.lead + one.text + "\n" for one in changed.statements)
    assert "    from .helpers import tern_helper; return" in text and '"""from acme.nets.tern.conf' in text
    assert with_absolute_imports(text, "acme.nets.tern").rstrip() == TEXT.rstrip()
    assert with_absolute_imports("from ..crow import x\n", "acme.nets.tern") == "from ..crow import x\n"


def test_a_package_of_the_same_name_is_another_one(library: Library, tmp_path: Path) -> None:
    text = "from other.nets.tern.configuration_tern import TernConfig\n"
    module = index_module(text, str(tmp_path / "acme" / "nets" / "tern" / "modeling_tern.py"))
    assert own_folder_name(module, library) == "" and in_own_terms(module, library) is module
