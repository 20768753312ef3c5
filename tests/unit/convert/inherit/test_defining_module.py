"""The module that defines a name which is imported from the root of its package."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter.convert.inherit.resolve import defining_module
from modular_converter.convert.source.library import Library
from modular_converter.settings.load import profile_settings


FILES = {
    "__init__.py": "from .tools import helper\n",
    "tools.py": "def helper(): ...\n\nlimit = 3\n    # class Indented\n",
    "utils/generic.py": "class Generic(dict): ...\nSIZE: int = 1\n",
    "utils/__init__.py": "VERSION = '1'\n",
    "models/llama/modeling_llama.py": "class LlamaMLP: ...\n\nclass Llama2Thing: ...\n",
    "models/llama/modular_llama.py": "class LlamaModularOnly: ...\n",
    "models/llama2/modeling_llama2.py": "class Llama2MLP: ...\n",
    "models/big_bird/modeling_big_bird.py": "class BigBirdMLP: ...\n",
    "models/llama/broken.py": "\xff",
}


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("helper", "lib.tools"),
        ("limit", "lib.tools"),
        ("Generic", "lib.utils.generic"),
        ("SIZE", "lib.utils.generic"),
        ("VERSION", "lib.utils"),
        ("LlamaMLP", "lib.models.llama.modeling_llama"),
        ("Llama2MLP", "lib.models.llama2.modeling_llama2"),
        ("Llama2Thing", "lib.models.llama.modeling_llama"),
        ("BigBirdMLP", "lib.models.big_bird.modeling_big_bird"),
        ("LlamaModularOnly", ""),
        ("Indented", ""),
        ("help", ""),
    ],
)
def test_where_a_name_is_defined(tmp_path: pathlib.Path, name: str, module: str) -> None:
    for path, text in FILES.items():
        place = tmp_path / "lib" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="latin-1")
    beside = str(tmp_path / "lib")
    assert defining_module(name, "lib", beside, Library(profile_settings())) == module


def test_packages_that_lack_something(tmp_path: pathlib.Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/__init__.py").touch()
    library = Library(profile_settings())
    assert defining_module("helper", "lib", str(tmp_path / "lib"), library) == ""
    assert defining_module("helper", "not_installed_at_all", str(tmp_path), library) == ""
