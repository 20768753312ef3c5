"""The folder of an adapter: its model is read from the folder that it names; nothing is downloaded."""

import json

import pytest
import torch
import transformers


pytest.importorskip("peft")

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.checkpoint.folder import _class_of_task, is_adapter, open_adapter  # noqa: E402
from modular_converter.parallel.errors import BuildError  # noqa: E402
from tests.parallel.adapted import adapted, llama, logits  # noqa: E402


@pytest.fixture
def saved(tmp_path):
    """The folder of an adapter, that of its model, and the answers of both together."""
    llama().save_pretrained(tmp_path / "base")
    base = type(llama()).from_pretrained(tmp_path / "base")
    model = adapted(base, r=4, target_modules=["q_proj"])
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", tmp_path / "base", logits(model)


def test_the_model_is_that_of_peft(saved):
    adapter, base, answers = saved
    assert is_adapter(adapter) and is_adapter(str(adapter)) and not is_adapter(base)
    assert torch.equal(logits(open_adapter(adapter, None)), answers)
    half = open_adapter(adapter, torch.bfloat16).get_base_model()
    assert half.lm_head.weight.dtype == torch.bfloat16


def test_a_model_with_an_adapter_in_its_folder_is_refused(saved):
    """``from_pretrained`` puts the adapter into the model; its weights alone would be another model."""
    adapter, base, _ = saved
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (base / name).write_bytes((adapter / name).read_bytes())
    for folder in (base, adapter):
        with pytest.raises(BuildError, match="base: holds a model and an adapter"):
            parallelize(folder, num_gpus=2, device="cpu")


def test_what_cannot_be_read_is_said(saved):
    adapter, base, _ = saved
    settings = json.loads((adapter / "adapter_config.json").read_text())
    for change, said in (
        ({"base_model_name_or_path": "some/name"}, "'some/name', which is not a folder here.*nothing is downloaded"),
        ({"base_model_name_or_path": None}, "None, which is not a folder here"),
        ({"r": 5}, "cannot be loaded into the model of .*base"),
    ):
        (adapter / "adapter_config.json").write_text(json.dumps(settings | change))
        with pytest.raises(BuildError, match=said):
            parallelize(adapter, num_gpus=2, device="cpu")
    (adapter / "adapter_config.json").write_text("[]")
    with pytest.raises(BuildError, match="is not a table of settings"):
        parallelize(adapter, num_gpus=2, device="cpu")
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(BuildError, match="has no adapter_model.safetensors"):
        parallelize(adapter, num_gpus=2, device="cpu")


def test_the_class_under_an_adapter_is_named_by_its_settings():
    """By the model's own class where the adapter has no task, or by the task."""
    assert _class_of_task({"auto_mapping": {"base_model_class": "LlamaModel"}}) is transformers.LlamaModel
    assert _class_of_task({"auto_mapping": None, "task_type": "CAUSAL_LM"}) is transformers.AutoModelForCausalLM
    assert _class_of_task({}) is None
