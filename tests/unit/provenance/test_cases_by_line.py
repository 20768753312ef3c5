"""Every line of the golden cases: the source that is told for it has its words, under other names of models."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from modular_converter.convert.source.library import Library
from modular_converter.provenance.generated import line_sources
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import is_modular
from tests.oracle.line_words import wrong_lines
from tests.test_cases import CASES, NAMES, SETTINGS, needs_newer_python


BOUND = {
    "heirs_that_ask_for_each_other": frozenset(("@Pixel", "@Voxel")),
    "inherit_case_asks_for_parent": frozenset(("@Box", "@Twin", "size", "0")),
    "inherit_mixin_calls_on": frozenset(("@MLPBase", "@GatedMLPBase", "@PlainMLPBase")),
    "inherit_mixin_hidden_by_parent": frozenset(("@MLPBase",)),
    "inherit_super_otherwise_spelt": frozenset(("@GateBase",)),
    "inherit_super_kwargs_in_an_expression": frozenset(("a", "c", "kwargs", "y")),
    "inherit_super_kwargs_in_two_bodies": frozenset(("config", "kwargs", "states", "bias")),
    "foreign_package": frozenset(("baselib",)),
    "inherit_argument_bound": frozenset(("size",)),
    "inherit_argument_computed": frozenset(("x", "mask", "options", "dict")),
    "inherit_register": frozenset(("@show",)),
    "inherit_super_as_value": frozenset(("super", "True")),
    "inherit_class_above": frozenset(("@staticmethod", "@classmethod", "@property", "EmuMLP", "cls", "self", "super")),
    "inherit_accessor_of_parent": frozenset(("@size", "@width")),
    "inherit_del_read_by_getter_of_parent": frozenset(("@size",)),
    "inherit_getter": frozenset(("@width",)),
    "imported_names": frozenset(("shifted",)),
    "inherit_local_name_of_module": frozenset(("own_scale", "own_max")),
    "inherit_param_rename": frozenset(("hidden_states",)),
    "inherit_super_args": frozenset(("hidden_states",)),
    "inherit_private_names": frozenset(("__parents_store", "_@Cache__parents_store")),
    "inherited_methods": frozenset(("cls", "self", "EmuEmbedding", "EmuNorm")),
    "names_object_held_twice": frozenset(("cache",)),
    "parent_apart_of_super_kwargs": frozenset(
        ("size", "eps", "float", "@_EPS", "is_fast", "kwargs", "hidden_states", "scale", "1")
    ),
    "inherit_parameter_replaced_by_loop": frozenset(("count", "1", "step", "2")),
}
"""Words that a conversion puts in: parameters of `super()` calls, names for `as` names, other local names, `@size.setter` of the class's own, packages of relative imports, private names."""


PRIVATE = re.compile(r"__inherited_\w+")
"""The private names of the parent's methods beside overrides."""


@pytest.mark.parametrize("name", NAMES)
def test_every_line_has_the_words_of_its_source(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if needs_newer_python(name):
        pytest.skip("its syntax is newer than this Python")
    shutil.copytree(CASES / name, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected"))
    has_settings = (tmp_path / "pyproject.toml").exists()
    (tmp_path / "pyproject.toml").touch()
    settings = load_settings(tmp_path) if has_settings else SETTINGS
    monkeypatch.syspath_prepend(str(tmp_path))
    (modular,) = (path for path in tmp_path.glob("**/*.py") if is_modular(str(path), settings))
    texts = {
        str(modular.parent / path.name): path.read_bytes().decode()
        for path in (CASES / name / "expected").glob("*.py")
    }
    if not texts:
        return
    models = [one for path in tmp_path.rglob("*.py") for one in (path.parent.name, path.stem.rpartition("_")[2])]
    for path, sources in line_sources(str(modular), texts, Library(settings)).items():
        assert len(sources) == texts[path].count("\n")
        private = frozenset(PRIVATE.findall(texts[path]))
        assert list(wrong_lines(texts[path], sources, models, BOUND.get(name, private) | private)) == [], path
