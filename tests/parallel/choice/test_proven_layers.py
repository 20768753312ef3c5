"""A plan is used for proven layers: other layers are proven too, or stay whole with a message."""

import copy
import logging

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import DebertaConfig, DebertaModel, LlamaConfig, LlamaModel  # noqa: E402

from modular_converter.parallel.choice import fit, trials  # noqa: E402
from modular_converter.parallel.choice.fit import unproven_parts, without_parts  # noqa: E402
from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.choice.small_instances import layer_overrides  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads  # noqa: E402
from tests.parallel.deceptive import DeceptiveConfig  # noqa: E402
from tests.parallel.exchanged import NormalisedLinear, SameLinear, ScaledLinear, exchanged  # noqa: E402
from tests.parallel.layer_lists import Along, Inlined, Listed, ListedConfig  # noqa: E402


SIZES = {"hidden_size": 48, "intermediate_size": 80, "vocab_size": 90}
IDS = torch.randint(5, 80, (3, 9), generator=torch.Generator().manual_seed(0))


def _holds(model, plan):
    return check_model_on_threads(copy.deepcopy(model), plan, {"input_ids": IDS}, 2).passed


def _llama(**settings):
    sizes = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2}
    return LlamaModel(LlamaConfig(**sizes | settings)).eval()


@pytest.mark.parametrize(
    "settings",
    [
        {"layer_types": [*["full_attention"] * 4, "linear_attention"]},
        {"first_dense_layers": 2},
        {"use_bias": [True, False, True, True, True]},
    ],
)
def test_layers_that_the_configuration_lists_are_proven(settings):
    model = Listed(ListedConfig(**SIZES, num_hidden_layers=5, **settings)).eval()
    plan, origin, _ = select_plan(model, None, 2)
    assert "proven with the model's own list of layers" in origin
    assert _holds(model, plan)


@pytest.mark.parametrize("kind", [Along, Inlined])
def test_layers_that_differ_by_a_dimension_or_outside_of_their_modules_are_proven(kind):
    model = kind(DeceptiveConfig(**SIZES, num_hidden_layers=4)).eval()
    plan, origin, _ = select_plan(model, None, 2)
    assert "proven with the model's own list of layers" in origin and _holds(model, plan)


def test_lists_of_words_reach_the_small_instance():
    model = Listed(ListedConfig(**SIZES, num_hidden_layers=3, norm_kinds=["full"])).eval()
    plan, origin, _ = select_plan(model, None, 2)
    assert _holds(model, plan) and "every layer is of a kind that was proven" in origin


@pytest.mark.slow
def test_deberta_as_published():
    config = DebertaConfig(
        **SIZES,
        num_hidden_layers=2,
        num_attention_heads=4,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=16,
    )
    model = DebertaModel(config).eval()
    plan, *_ = select_plan(model, None, 2)
    assert plan.rules and _holds(model, plan)


@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(ScaledLinear, "o_proj", marks=pytest.mark.slow), (NormalisedLinear, "down_proj")]
)
def test_layers_that_were_exchanged_are_proven_or_whole(kind, name, caplog):
    model = exchanged(_llama(num_hidden_layers=3), kind, name)
    with caplog.at_level(logging.WARNING):
        plan, origin, _ = select_plan(model, None, 2)
    assert "left whole, since not proven: layers.0 (has class" in origin
    assert "stay whole, since no small instance has their kind: layers.0" in caplog.text and _holds(model, plan)


def test_a_harmless_exchange_is_proven_on_the_model_itself():
    model = exchanged(_llama(), SameLinear, "o_proj")
    plan, origin, _ = select_plan(model, None, 2)
    assert "proven on one layer of each kind of the model itself" in origin and _holds(model, plan)


def test_many_weights_are_not_tried(monkeypatch, nothing_kept):
    monkeypatch.setattr(fit, "MOST_PARAMETERS", 10)
    model = exchanged(_llama(), SameLinear, "o_proj")
    plan, *_ = select_plan(model, None, 2)
    assert not any("layers" in rule.pattern for rule in plan.rules) and _holds(model, plan)


MLP = "plan x\nrule layers.*.up colwise\nrule layers.*.down rowwise\n"
GATED = "plan x\nrule layers.*.mlp.{} colwise\nrule layers.*.mlp.{} colwise\nrule layers.*.mlp.down_proj rowwise\n"


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        (lambda: _llama(num_hidden_layers=3), GATED, "; every layer is of a kind that was proven"),
        (
            lambda: exchanged(_llama(), SameLinear, "down_proj"),
            GATED,
            "; proven on one layer of each kind of the model",
        ),
        (
            lambda: exchanged(_llama(), ScaledLinear, "down_proj"),
            GATED,
            "; not proven on parts of kinds that no small instance",
        ),
        (
            lambda: Listed(ListedConfig(**SIZES, num_hidden_layers=3, use_bias=[True, False, True])),
            MLP,
            "; proven with the",
        ),
        (lambda: Listed(ListedConfig(**SIZES, num_hidden_layers=3, first_dense_layers=1)), MLP, "; refused with the"),
    ],
)
def test_a_given_plan_is_held_against_the_layers_and_stays_as_it_is(model, text, said, caplog):
    with caplog.at_level(logging.WARNING):
        plan, origin, _ = select_plan(model().eval(), text.format("gate_proj", "up_proj"), 2)
    assert origin.startswith("the given plan, verified") and said in origin
    assert len(plan.rules) == text.count("rule ")
    unproven = "not proven on parts of kinds that no small instance has: layers.0 (" in caplog.text
    assert unproven == ("not proven on" in origin) == (said.startswith(("; not", "; refused")))


def test_an_option_of_an_embedding_is_seen():
    model = _llama()
    assert unproven_parts(model, _llama(vocab_size=50)) == {}
    model.embed_tokens.max_norm = 0.5
    assert unproven_parts(model, _llama()) == {"embed_tokens": "has setting max_norm given"}
    plan, origin, _ = select_plan(model, None, 2)
    assert "of the model itself" in origin and _holds(model, plan)


def test_rows_of_an_embedding_that_are_written_to_are_shared_out():
    """The first lookup shortens rows: the proof and the ranks begin with the same ones."""
    model = _llama()
    model.embed_tokens.max_norm, before = 0.02, model.embed_tokens.weight.detach().clone()
    plan = Plan.parse("plan x\nrule embed_tokens embedding_rowwise\n")
    verdict = check_model_on_threads(model, plan, {"input_ids": IDS}, 2)
    assert verdict.passed, verdict.reason
    assert torch.equal(model.embed_tokens.weight, before)
    model.embed_tokens.scale_grad_by_freq = True
    assert "leave this embedding whole" in check_model_on_threads(model, plan, {"input_ids": IDS}, 2).reason


def test_train_mode_is_no_difference():
    assert unproven_parts(_llama().train(), _llama()) == {}


def test_settings_of_layers():
    small = ListedConfig(**SIZES, num_hidden_layers=2)
    assert layer_overrides(ListedConfig(**SIZES, num_hidden_layers=2), small) == {}
    assert layer_overrides(ListedConfig(**SIZES, num_hidden_layers=3, first_dense_layers=1), small) == {
        "num_hidden_layers": 3,
        "first_dense_layers": 1,
        "layer_types": ["full_attention"] * 3,
        "use_bias": [True] * 3,
    }


def test_a_plan_without_parts_names_the_others():
    plan = Plan.parse(
        "plan x\nrule layers.*.mlp.up_proj colwise\nrule norm shard\nattribute layers.*.self_attn:head_dim\n"
    )
    found = without_parts(plan, _llama(), {"layers.0", "norm"})
    assert [rule.pattern for rule in found.rules] == ["layers.1.mlp.up_proj"]
    assert found.attributes == ("layers.1.self_attn:head_dim",)


def test_a_model_is_run_without_data_once_and_again_when_it_changes(monkeypatch):
    run, runs = trials.kinds_of_call, []
    trials._kinds_without_data.cache_clear()
    monkeypatch.setattr(
        trials, "kinds_of_call", lambda skeleton, inputs: runs.append(skeleton) or run(skeleton, inputs)
    )
    model = _llama()
    first = trials.traced_kinds(model)
    assert trials.traced_kinds(model) == first and len(runs) == 1
    model.layers[1].mlp.act_fn = torch.nn.Tanh()
    assert trials.traced_kinds(model) != first and len(runs) == 2
    for layers in range(3, 8):
        trials.traced_kinds(_llama(num_hidden_layers=layers))
    assert trials._kinds_without_data.cache_info().currsize == trials._MOST_KINDS


def test_what_shares_the_weight_of_a_whole_part_is_whole_too():
    model = torch.nn.ModuleDict(
        {"table": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False), "up": torch.nn.Linear(4, 8)}
    )
    model["same"], model["head"].weight = model["table"], model["table"].weight
    plan = Plan.parse("plan x\nrule same embedding_rowwise\nrule head colwise\nrule up colwise\n")
    assert [rule.pattern for rule in without_parts(plan, model, {"table"}).rules] == ["up"]
