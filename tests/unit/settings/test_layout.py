from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from modular_converter.findings import ConversionError
from modular_converter.settings.load import load_settings, profile_settings
from modular_converter.settings.values import (
    FILES,
    dotted_name,
    is_modular,
    model_of_modular,
    models_folder_of,
    modular_of,
    parts_below_models,
    split_stem,
)


FOLDERS = profile_settings()
KINDS = {
    "A": "image_processing",
    "B": "image_processing_pil",
    "C": "tokenization",
    "D": "tokenization_{model}_fast",
}
FLAT = replace(FOLDERS, layout=FILES, default_kind="{model}", kinds={}, package="acme", no_models=("base",))
OTHER_PREFIX = replace(FOLDERS, modular_kind="delta")


@pytest.mark.parametrize(
    ("stem", "found"),
    [
        ("modeling_vit", ("modeling", "vit")),
        ("image_processing_pil_vit", ("image_processing_pil", "vit")),
        ("tokenization_vit_fast", ("tokenization_{model}_fast", "vit")),
        ("tokenization_vit", ("tokenization", "vit")),
        ("tokenization__fast", ("tokenization", "_fast")),
        ("utils", None),
        ("modular_vit", None),
    ],
)
def test_the_kind_and_model_of_a_file_name(stem: str, found: tuple[str, str] | None) -> None:
    assert split_stem(stem, replace(FOLDERS, kinds=KINDS)) == found


@pytest.mark.parametrize(
    ("stem", "found"),
    [
        ("llama", ("{model}", "llama")),
        ("modular_llama", None),
        ("base", None),
        ("_builder", None),
        ("__init__", None),
    ],
)
def test_a_file_for_each_model_in_one_folder(stem: str, found: tuple[str, str] | None) -> None:
    assert split_stem(stem, FLAT) == found


def test_the_places_of_both_layouts() -> None:
    assert modular_of("/m/emu/modeling_emu.py", FOLDERS) == "/m/emu/modular_emu.py"
    assert modular_of("/m/emu.py", FLAT) == "/m/modular_emu.py"
    assert models_folder_of("/m/emu/modular_emu.py", FOLDERS) == models_folder_of("/m/modular_emu.py", FLAT) == "/m"
    assert dotted_name("/m/emu/modeling_emu.py", FOLDERS) == "..emu.modeling_emu"
    assert dotted_name("/m/emu.py", FLAT) == ".emu"


def test_modules_in_the_folder_of_models() -> None:
    assert parts_below_models("transformers.models.llama.modeling_llama", FOLDERS) == ("llama", "modeling_llama")
    assert parts_below_models(".llama", FLAT) == parts_below_models("acme.models.llama", FLAT) == ("llama",)
    assert parts_below_models("other.models.llama", FLAT) is None, "only the own package has this layout"


def test_modular_files_have_the_prefix_of_the_settings() -> None:
    assert model_of_modular("/m/emu/delta_emu.py", OTHER_PREFIX) == "emu"
    assert not is_modular("/m/emu/modular_emu.py", OTHER_PREFIX)
    assert modular_of("/m/emu/modeling_emu.py", OTHER_PREFIX) == "/m/emu/delta_emu.py"


@pytest.mark.parametrize(
    "rows", ['default-kind = "Modular"', 'modular-kind = "modeling"', 'kinds = {MLP = "modular_a"}']
)
def test_no_kind_of_file_has_the_name_of_modular_files(rows: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.modular-converter]\n{rows}\n")
    with pytest.raises(ConversionError, match="overwrite the modular file"):
        load_settings(tmp_path)
