"""Small instances: configurations keep the relations that models rely on, and inputs reach every tower."""

import importlib.util

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.errors import BuildError, UnknownModel  # noqa: E402
from modular_converter.parallel.tiny.build import build, randomise, target_of, targets_of_folder  # noqa: E402
from modular_converter.parallel.tiny.fields import integer, pair, sub, token  # noqa: E402
from modular_converter.parallel.tiny.shrink import (  # noqa: E402
    BATCH,
    SEQUENCE,
    shrink,  # noqa: E402
    small_value,
    width_of,
)
from modular_converter.parallel.trace.record import tensors_in  # noqa: E402


# Type -> an input that shows that the tower for it took part.
TOWERS = {
    "llama": "input_ids",
    "qwen2_vl": "image_grid_thw",
    "qwen3_vl_vision": "grid_thw",
    "llava": "pixel_values",
    "llava_next": "image_sizes",
    "idefics3": "pixel_attention_mask",
    "siglip2": "spatial_shapes",
    "videomae": "pixel_values",
    "mllama": "aspect_ratio_ids",
    "audioflamingo3": "input_features_mask",
    "whisper": "input_features",
    "speecht5": "decoder_input_values",
    "autoformer": "past_time_features",
    "decision_transformer": "returns_to_go",
    "musicgen": "input_ids",
    "detr": "pixel_values",
    "layoutlm": "bbox",
}


def config_of(name, strategy="sizes"):
    return shrink(target_of(name).load()[1], strategy)


@pytest.fixture(scope="module", params=TOWERS)
def small(request):
    return build(target_of(request.param))


def test_inputs_reach_the_tower(small):
    assert TOWERS[small.name] in small.inputs
    with torch.no_grad():
        outputs = tensors_in(small.model(**small.inputs))
    assert outputs
    assert all(torch.isfinite(tensor).all() for tensor in outputs if tensor.is_floating_point())


@pytest.mark.parametrize(
    "layer",
    [
        lambda: torch.nn.Conv1d(48, 48, 3, padding=1),
        lambda: torch.nn.Conv1d(48, 48, 5, padding=2, groups=6),
        lambda: torch.nn.ConvTranspose1d(48, 48, 4, stride=2),
        lambda: torch.nn.Linear(48, 48),
    ],
    ids=["convolution", "groups", "transposed", "linear"],
)
def test_many_layers_make_numbers_neither_huge_nor_tiny(layer):
    """Otherwise those of thirty convolutions overflow, or rounding decides the gradients of the first ones."""
    is_linear = isinstance(layer(), torch.nn.Linear)
    for seed in (7, 8):
        model = torch.nn.ModuleList(layer() for _ in range(30))
        randomise(model, seed)
        found = torch.randn((48, 48) if is_linear else (2, 48, 40), generator=torch.Generator().manual_seed(seed))
        for one in model:
            found = one(found)[..., :48]
        assert 0.2 < float(found.detach().std()) < 5


def test_the_same_model_and_inputs_each_time(small):
    again = build(target_of(small.name))
    assert again.strategy == small.strategy
    first, second = small.model.state_dict(), again.model.state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert list(small.inputs) == list(again.inputs)
    pairs = zip(tensors_in(small.inputs), tensors_in(again.inputs), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("name", ["llama", "bert", "mixtral", "t5", "gpt2", "falcon", "qwen2_vl_text", "gemma3_text"])
def test_what_is_sharded_divides_by_four(name):
    config = config_of(name)
    heads = integer(config, ("num_attention_heads", "n_head", "num_heads"), 0)
    width = integer(config, ("hidden_size", "d_model", "n_embd"), 0)
    wide = integer(config, ("intermediate_size", "d_ff", "ffn_hidden_size", "n_inner"), 4 * width)
    assert heads in (4, 8)
    assert [width % 4, wide % 4, config.vocab_size % 4] == [0, 0, 0]
    assert len({width, wide, config.vocab_size, BATCH, SEQUENCE}) == 5


@pytest.mark.parametrize("name", ["whisper", "videomae"])
def test_heads_of_each_stack_divide_by_four(name):
    """The default of a decoder is six heads, beside an encoder with as many or more: as a count of heads, not as a name."""
    config = build(target_of(name)).model.config
    heads = {key: value for key, value in vars(config).items() if key.endswith("attention_heads")}
    assert len(heads) == 2
    assert all(count % 4 == 0 for count in heads.values()), heads


@pytest.mark.parametrize("name", ["llama", "jamba", "gemma3_text", "qwen3_next", "bamba"])
def test_two_layers_and_one_of_each_kind(name):
    config = config_of(name)
    default = type(config)()
    assert config.num_hidden_layers >= 2
    if getattr(default, "layer_types", None):
        assert set(config.layer_types) >= set(default.layer_types)
        assert len(config.layer_types) == config.num_hidden_layers


@pytest.mark.parametrize(("name", "grouped"), [("llama", False), ("mistral", True), ("bert", False)])
def test_grouped_heads_stay_grouped(name, grouped):
    config = config_of(name)
    groups = getattr(config, "num_key_value_heads", config.num_attention_heads)
    assert (groups < config.num_attention_heads) is grouped


@pytest.mark.parametrize("name", ["qwen2_vl_text", "glm4v_text", "qwen3_vl_text", "glm4v_moe_text"])
def test_rotary_sections_fill_half_of_the_rotated_part(name):
    config = config_of(name)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotated = int(head * config.rope_parameters.get("partial_rotary_factor", 1.0))
    assert sum(config.rope_parameters["mrope_section"]) == rotated // 2


def test_what_differs_by_layer_keeps_its_ratio():
    config = config_of("gemma4_text")
    by_kind = dict(zip(config.layer_types, config.per_layer_config, strict=True))
    assert by_kind["full_attention"].head_dim == 2 * by_kind["sliding_attention"].head_dim


def test_ratios_keep_folded_widths():
    default = target_of("voxtral").load()[1]().audio_config
    config = config_of("voxtral", "ratios").audio_config
    assert config.intermediate_size / config.hidden_size == default.intermediate_size / default.hidden_size


def test_placeholders_are_as_many_as_the_tower_returns():
    small = build(target_of("llava"))
    marker = token(small.model.config, "image")
    with torch.no_grad():
        features = small.model.get_image_features(pixel_values=small.inputs["pixel_values"]).pooler_output
    count = sum(len(rows) for rows in features)
    assert int((small.inputs["input_ids"] == marker).sum()) == count > 0


def test_grid_and_patches_agree():
    small = build(target_of("qwen2_vl"))
    assert int(small.inputs["image_grid_thw"].prod(-1).sum()) == len(small.inputs["pixel_values"])


def test_backbones_of_a_missing_library_become_local():
    config = config_of("deformable_detr")
    assert config.backbone_config.model_type == "resnet"
    assert len(config.backbone_config.out_features) == 3


def test_feature_maps_are_as_many_as_before():
    target = targets_of_folder("depth_anything")[0]
    config = shrink(target.load()[1], "sizes")
    assert len(config.backbone_config.out_features) == len(config.neck_hidden_sizes)


def test_given_values_win_at_any_depth():
    config = shrink(target_of("llava").load()[1], "sizes", {"vision_config.hidden_size": 32, "image_token_index": 9})
    assert (config.vision_config.hidden_size, config.image_token_id) == (32, 9)


def test_base_models_of_a_folder():
    names = [target.name for target in targets_of_folder("qwen2_vl")]
    assert names[0] == "qwen2_vl"
    assert set(names) == {"qwen2_vl", "qwen2_vl_text"}


def test_classes_of_a_folder_that_has_no_base_model():
    classes = [target.model_class.rpartition(".")[2] for target in targets_of_folder("rag")]
    assert classes[0] == "RagModel"
    assert not any(name.endswith("PreTrainedModel") for name in classes)
    assert build(targets_of_folder("trocr")[0]).inputs


def test_unknown_folders_list_the_nearest():
    with pytest.raises(UnknownModel, match="did you mean.*llama"):
        targets_of_folder("lama")


def test_a_folder_without_models_says_so():
    with pytest.raises(BuildError, match="auto: no class"):
        targets_of_folder("auto")


def test_a_type_with_a_dot_is_no_class_path():
    assert target_of("kosmos-2.5").model_class.endswith("kosmos2_5.Kosmos2_5Model")


def test_the_reason_and_what_to_give():
    with pytest.raises(BuildError, match=r"(?s)\(7\).*--set hidden_size=") as caught:
        build(target_of("bert"), {"num_attention_heads": 7})
    assert "hidden size" in str(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("natten") is not None, reason="the library is installed")
def test_a_missing_library_is_named():
    with pytest.raises(BuildError, match="natten"):
        build(target_of("dinat"))


def test_small_values_never_exceed_the_default():
    assert small_value("num_key_value_heads", 1) == 1
    assert small_value("hidden_size", 4096) == small_value("d_model", 1024) == 64
    assert small_value("num_labels", 1000) == 1000
    assert [width_of(width) for width in (16, 64, 512)] == [16, 8, 64]


def test_values_of_configurations():
    config = target_of("llava").load()[1]()
    assert sub(config, "vision_config").model_type == "clip_vision_model"
    assert pair(sub(config, "vision_config"), ("image_size",), 0) == (336, 336)
    assert token(target_of("bert").load()[1](), "image") == -1


def test_a_small_instance_has_not_run():
    small = build(target_of("levit"))
    caches = [
        module.attention_bias_cache for module in small.model.modules() if hasattr(module, "attention_bias_cache")
    ]
    assert caches and not any(caches)


def test_a_value_that_only_the_models_code_knows_can_be_given():
    given = {"relative_attention": True, "share_att_key": True}
    assert build(target_of("deberta-v2"), given).model.config.share_att_key
    with pytest.raises(BuildError, match="has no value 'share_att_kye'; did you mean share_att_key?"):
        build(target_of("deberta-v2"), {"share_att_kye": True})


def test_another_default_type_is_named_as_the_reason_with_its_cure():
    from transformers import LlamaConfig

    from modular_converter.parallel.tiny.fields import explained

    reasons = [("sizes", "RuntimeError: Expected mat_a to be Float32, BFloat16 or Float16 matrix, got Double")]
    assert "--set" in explained(reasons, LlamaConfig)
    torch.set_default_dtype(torch.float64)
    try:
        assert "default type is float64" in explained(reasons, LlamaConfig)
        assert "call torch.set_default_dtype(torch.float32) before" in explained(reasons, LlamaConfig)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("audio-spectrogram-transformer", {"input_values": [2, 128, 128]}),
        ("idefics", {"pixel_values": [2, 2, 3, 32, 32], "image_attention_mask": [2, 12, 2]}),
        ("minicpmv4_6", {"pixel_values": [1, 3, 8, 512], "target_sizes": [2, 2]}),
    ],
)
def test_images_and_sounds_have_the_form_that_the_model_takes(name, shapes):
    inputs = build(target_of(name)).inputs
    assert {key: list(inputs[key].shape) for key in shapes} == shapes
