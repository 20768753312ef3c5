"""Trials of a user's model: inputs that run, copies with data, and refusals where no trial runs or nothing is shared."""

import pytest


torch = pytest.importorskip("torch")
T = pytest.importorskip("transformers")
from modular_converter.parallel.choice import select_plan, trials  # noqa: E402
from modular_converter.parallel.choice.fit import _holds_on_itself, fit, fitted  # noqa: E402
from modular_converter.parallel.choice.same_numbers import restricted_to_numbers  # noqa: E402
from modular_converter.parallel.choice.skeleton import skeleton_of  # noqa: E402
from modular_converter.parallel.choice.trials import inputs_with_data, inputs_without_data  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402


PLAN = Plan.parse(
    "plan x\nrule model.embed_tokens embedding_rowwise\nrule model.layers.*.mlp.gate_proj colwise\n"
    "rule model.layers.*.mlp.up_proj colwise\nrule model.layers.*.mlp.down_proj rowwise\n"
)


def llama(**more):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    return T.LlamaForCausalLM(T.LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=96, **more)).eval()


def without_weights(model):
    """As from a folder: weights on the meta device, buffers with data."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = None if parameter is None else torch.nn.Parameter(parameter.to("meta"))
    return model


def llava():
    text = {"hidden_size": 144, "intermediate_size": 272, "num_attention_heads": 6, "num_key_value_heads": 3}
    vision = {"hidden_size": 96, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 6}
    config = T.LlavaConfig(
        vision_config=T.CLIPVisionConfig(**vision, image_size=32, patch_size=8),
        text_config=T.LlamaConfig(**text, num_hidden_layers=2, vocab_size=331),
        image_token_index=330,
        image_seq_length=16,
    )
    return T.LlavaForConditionalGeneration(config).eval()


def test_inputs_are_those_with_which_the_model_runs():
    """Llava takes sizes of images, which a tower of CLIP does not; three key/value heads do not divide over two ranks."""
    model = llava()
    given = inputs_with_data(model)
    assert given.keys() == inputs_without_data(skeleton_of(model), None).keys() and "image_sizes" not in given
    with torch.no_grad():
        assert model(**given).logits.shape[-1] == 331
    heads = "".join(
        f"rule model.language_model.layers.*.self_attn.{name}_proj {style}\n"
        for name, style in (("q", "colwise"), ("k", "colwise"), ("v", "colwise"), ("o", "rowwise"))
    )
    found = fit(skeleton_of(model), Plan.parse(f"plan x\n{heads}"), 2)
    assert not found.untried and {rule.units for rule in found.plan.rules} == {3}


@pytest.mark.parametrize("pad", [2, 5])
def test_layers_of_a_model_without_weights_are_proven_as_those_of_one_with_weights(pad):
    for model in (llama(pad_token_id=pad), without_weights(llama(pad_token_id=pad))):
        assert _holds_on_itself(model, PLAN, 2)
    wrong = Plan.parse("plan x\nrule model.layers.*.mlp.up_proj colwise\nrule model.layers.*.mlp.down_proj rowwise\n")
    assert not _holds_on_itself(without_weights(llama(pad_token_id=pad)), wrong, 2)


def test_a_copy_with_data_has_a_number_for_each_weight():
    made = trials.with_data(without_weights(llama()), 1e6)
    assert made is not None and all(one.isfinite().all() for one in made.parameters())
    assert trials.with_data(llama(), 10) is None


def test_a_trial_with_data_takes_the_place_of_one_without(monkeypatch):
    monkeypatch.setattr(trials, "TYPES", ())
    model = llama()
    assert not fit(skeleton_of(model), PLAN, 2, model).untried
    assert restricted_to_numbers(model, PLAN, 2, 2, False) == (PLAN, "")


def test_without_a_trial_there_is_no_plan(monkeypatch):
    monkeypatch.setattr(trials, "TYPES", ())
    monkeypatch.setattr(trials, "MOST_WITH_DATA", 10)
    with pytest.raises(ApplyError, match=r"no trial shows that a rank computes the same.*give a plan .* as plan="):
        restricted_to_numbers(llama(), PLAN, 2, 2, False)
    assert "could not be compared" in restricted_to_numbers(llama(), PLAN, 2, 2, True)[1]
    monkeypatch.setattr("modular_converter.parallel.choice.fit._untried", lambda *given: "it fails")
    monkeypatch.setattr("modular_converter.parallel.choice.fit._trace", lambda *given: None)
    with pytest.raises(ApplyError, match="no trial shows .*it fails"):
        fitted(llama(rms_norm_eps=1e-4), PLAN, "", 2, 2, False)


def test_nothing_shared_out_is_an_error_with_the_cure(monkeypatch):
    def nothing(model, plan, origin, ranks, own):
        return Plan(
            "x", (), (), ()
        ), f"{origin}; left whole, since not proven: model.layers.0 (has operation _softmax)"

    monkeypatch.setattr(select_plan, "restricted_to_layers", nothing)
    with pytest.raises(ApplyError, match=r"nothing would be shared out, .*_softmax.*use as many devices as"):
        select_plan.select_plan(llama(), None, 2)


def test_a_copy_keeps_a_layer_of_each_part_of_a_pair():
    net = torch.nn.Module()
    net.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))
    pairs = Plan.parse(
        "plan x\n" + "".join(f"rule layers.{n} {style}\n" for n, style in enumerate(("colwise", "rowwise") * 2))
    )
    kinds = trials.kinds_by_modules(net)
    assert [len(trials.one_of_each_kind(net, kinds, plan).layers) for plan in (None, PLAN, pairs)] == [1, 1, 2]


def test_a_copy_keeps_a_weight_that_is_computed_from_others():
    """As that of the convolution beside the layers of Wav2Vec2: `copy` refuses such a module."""
    net = torch.nn.Module()
    net.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    net.conv = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))
    kinds = trials.kinds_by_modules(net)
    assert any("parametrizations" in path for path in kinds)
    short = trials.one_of_each_kind(net, kinds)
    assert len(short.layers) == 1 and len(net.layers) == 3
    assert short.conv.weight.equal(net.conv.weight)
