"""The class of each entry, and the plan that the library gathers from all classes."""

from __future__ import annotations

import pytest


pytest.importorskip("transformers")
from transformers import BertConfig, CLIPConfig, CLIPTextConfig, CLIPVisionConfig, LlamaConfig  # noqa: E402

from modular_converter.parallel.errors import WriteError  # noqa: E402
from modular_converter.parallel.plans.class_settings import (  # noqa: E402
    BASE_PLAN,
    HEAD_PLAN,
    Setting,
    base_settings,
    gathered_plan,
    holding,
)
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


@pytest.fixture(scope="module")
def clip():
    return build(target_of("clip")).model


def test_entries_go_to_the_configuration_of_their_part(clip):
    entries = {
        "text_model.encoder.layers.*.mlp.fc1": "colwise",
        "vision_model.encoder.layers.*.mlp.fc1": "colwise",
        "text_projection": "colwise_gather_output",
    }
    settings = base_settings(clip, entries)
    assert [(one.owner, one.attribute, one.entries) for one in settings] == [
        (CLIPConfig, BASE_PLAN, {"text_projection": "colwise_gather_output"}),
        (CLIPTextConfig, BASE_PLAN, {"encoder.layers.*.mlp.fc1": "colwise"}),
        (CLIPVisionConfig, BASE_PLAN, {"encoder.layers.*.mlp.fc1": "colwise"}),
    ]
    with holding(settings):
        assert gathered_plan(clip) == entries
    assert gathered_plan(clip) == {}
    assert not CLIPConfig.base_model_tp_plan


def test_what_the_loader_adds_is_left_out():
    model = build(target_of("llama")).model
    entries = gathered_plan(model)
    assert entries["embed_tokens"] == "embedding_rowwise"
    [setting] = base_settings(model, entries)
    assert setting.entries == LlamaConfig.base_model_tp_plan
    assert setting.is_current


def test_parts_that_share_a_class_must_agree():
    """Both towers of a dual encoder are given one configuration class."""
    model = build(target_of("clip")).model
    model.vision_model.config = model.text_model.config
    same = {f"{tower}_model.encoder.layers.*.mlp.fc1": "colwise" for tower in ("text", "vision")}
    assert base_settings(model, same)[0].entries == {"encoder.layers.*.mlp.fc1": "colwise"}
    with pytest.raises(WriteError, match="CLIPTextConfig: `encoder.layers.*.mlp.fc1` is colwise in one part"):
        base_settings(model, {**same, "vision_model.encoder.layers.*.mlp.fc1": "rowwise"})


def test_a_head_holds_what_it_adds_for_a_while_only():
    model = build(target_of("bert")).model
    settings = [
        Setting(BertConfig, BASE_PLAN, {"pooler.dense": "colwise_gather_output"}),
        Setting(type(model), HEAD_PLAN, {}),
    ]
    with pytest.raises(KeyError), holding(settings):
        assert gathered_plan(model) == {"pooler.dense": "colwise_gather_output"}
        raise KeyError
    assert HEAD_PLAN not in vars(type(model))
    assert gathered_plan(model) == {}


def test_what_a_class_held_is_held_again():
    before = LlamaConfig.base_model_tp_plan
    assert Setting(LlamaConfig, BASE_PLAN, dict(reversed(before.items()))).is_current
    other = Setting(LlamaConfig, BASE_PLAN, {"norm": "replicate"})
    with holding([other]):
        assert LlamaConfig.base_model_tp_plan == {"norm": "replicate"} and other.is_current
    assert LlamaConfig.base_model_tp_plan is before and not other.is_current
