"""Putting a file together: banner, header, imports, definitions, `__all__`, in this order."""

from __future__ import annotations

import pathlib

from modular_converter.convert.emit.assemble import on_one_line, render_all
from modular_converter.convert.pipeline import convert
from modular_converter.convert.source.library import Library
from modular_converter.model.index import index_module
from modular_converter.model.lexer import classes_in_strings
from modular_converter.settings.load import profile_settings


MODULAR = """\
# Licence.
import os
import re


class NewConfig:
    name = os.sep


class NewModel:
    config_class = NewConfig


__getattr__ = {"Old": "NewModel"}.get
__all__ = ["NewConfig", "NewModel"]
"""


def test_the_parts_stand_in_order(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "models" / "new" / "modular_new.py"
    path.parent.mkdir(parents=True)
    path.write_text(MODULAR)
    conversion = convert(str(path), Library(profile_settings()))
    texts = {pathlib.Path(name).name: text for name, text in conversion.files.items()}
    assert sorted(texts) == ["configuration_new.py", "modeling_new.py"]
    modeling = texts["modeling_new.py"]
    parts = ("# Licence.", "import NewConfig", "class NewModel", "__getattr__ =", '__all__ = ["NewModel"]')
    places = [modeling.index(part) for part in parts]
    assert modeling.startswith("#  ") and places == sorted(places)
    assert "import re" not in texts["configuration_new.py"]
    assert "__getattr__" not in texts["configuration_new.py"]
    assert texts["configuration_new.py"].endswith('__all__ = ["NewConfig"]\n')


def test_exports() -> None:
    assert index_module('__all__ = ["A"]\n', "m.py").exported == ("A",)
    assert index_module("A = 1\n", "m.py").exported == ()
    assert render_all(["A", "B"]) == '__all__ = ["A", "B"]\n'


def test_the_class_names_in_a_statement() -> None:
    text = "__getattr__ = old(\n    {'Old': \"New\", 'lower': 1},\n)"
    assert classes_in_strings(text) == ["Old", "New"]
    assert on_one_line(text) == "__getattr__ = old({'Old': 'New', 'lower': 1})\n"
