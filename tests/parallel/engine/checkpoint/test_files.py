"""Folders that hold no model, or a damaged one: an error with file and key, before any process is started."""

from __future__ import annotations

import json
import os

import pytest
import torch


pytest.importorskip("transformers")
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, LlamaModel  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.errors import PlanError  # noqa: E402


SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "vocab_size": 40, "pad_token_id": 0}


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **SIZES)).save_pretrained(tmp_path, max_shard_size="20KB")
    return tmp_path


def refused(folder, **given):
    with pytest.raises(PlanError) as error:
        parallelize(folder, num_gpus=2, device="cpu", **given)
    return str(error.value)


def file_with(folder, key):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return folder / index["weight_map"][key]


def change(path, **changes):
    """Write a table of settings, or the tensors of a file, anew with changes; None takes an entry out."""
    if path.suffix == ".json":
        found = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))
        return
    found = load_file(path) | changes
    save_file({key: value for key, value in found.items() if value is not None}, path)


KEY = "model.layers.1.mlp.up_proj.weight"


def test_a_key_of_the_index_that_its_file_lacks(folder):
    path = file_with(folder, KEY)
    change(path, **{KEY: None})
    assert f"{path}: {KEY} is missing" in refused(str(folder))


def test_a_weight_that_no_file_has(folder):
    change(file_with(folder, KEY), **{KEY: None})
    index = folder / "model.safetensors.index.json"
    table = json.loads(index.read_text())["weight_map"]
    del table[KEY]
    change(index, weight_map=table)
    said = refused(folder)
    assert "lack weights of LlamaForCausalLM: " + KEY in said and str(folder) in said


def test_a_wrong_shape(folder):
    path = file_with(folder, KEY)
    change(path, **{KEY: torch.zeros(3, 4)})
    assert f"{path}: {KEY} has the shape (3, 4), but LlamaForCausalLM wants (48, 32)" in refused(folder)


def test_a_truncated_file(folder):
    path = file_with(folder, KEY)
    path.write_bytes(path.read_bytes()[:-10])
    said = refused(folder)
    assert str(path) in said and "cannot be read" in said


@pytest.mark.parametrize("content", [b"", b"\x08\x00\x00\x00\x00\x00\x00\x00[1, 2]  ", b"\xff" * 64])
def test_a_file_that_is_none(folder, content):
    path = file_with(folder, KEY)
    path.write_bytes(content)
    assert str(path) in refused(folder)


def test_a_missing_file_and_a_file_elsewhere(folder):
    path = file_with(folder, KEY)
    path.unlink()
    assert str(path) in refused(folder)
    index = folder / "model.safetensors.index.json"
    change(index, weight_map={KEY: "../other/model.safetensors"})
    assert "which is not a file of this folder" in refused(folder)
    index.write_text("{")
    assert f"{index}: is not an index" in refused(folder)


def test_pickled_files_are_not_read(folder, tmp_path):
    for path in folder.glob("model*"):
        path.unlink()
    assert refused(folder).endswith("has neither model.safetensors nor model.safetensors.index.json")
    save_file({"weight": torch.ones(1)}, folder / "part.safetensors")
    assert "has neither model.safetensors nor model.safetensors.index.json; it has part.safetensors" in refused(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert "save_pretrained, which writes safetensors" in refused(folder)


def test_no_model_at_all(tmp_path):
    assert "is not a folder" in refused(tmp_path / "none")
    assert "has no config.json" in refused(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "adapter" in refused(tmp_path)
    (tmp_path / "config.json").write_text("[1")
    assert "cannot be read" in refused(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "no such type"}')
    assert "holds a model and an adapter" in refused(tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    assert "cannot be read" in refused(tmp_path)


def test_code_in_the_folder_is_not_run(folder):
    (folder / "modeling_own.py").write_text("raise SystemExit('it was run')")
    change(folder / "config.json", auto_map={"AutoModelForCausalLM": "modeling_own.Own"})
    assert "auto_map names code of the folder, which is not run" in refused(folder)
    change(folder / "config.json", auto_map=None, architectures=["Own"])
    assert "Own, which is not a model of this version" in refused(folder)


def test_classes_that_do_not_fit(folder):
    assert "give a model class" in refused(folder, model_class=torch.nn.Linear)
    from transformers import AutoModelForImageClassification

    assert "it has no model for LlamaConfig" in refused(folder, model_class=AutoModelForImageClassification)
    with pytest.raises(PlanError, match="has its class already"):
        parallelize(LlamaModel(LlamaConfig(num_hidden_layers=1, **SIZES)), model_class=AutoModelForCausalLM)


def test_links_and_dots_are_ordinary(folder, tmp_path):
    from modular_converter.parallel.engine.checkpoint.model_files import open_checkpoint

    link = tmp_path / "link"
    os.symlink(folder, link)
    found = open_checkpoint(link / ".." / tmp_path.name, None)
    assert set(found.recipes) == {name for name, _ in found.model.named_parameters()}
