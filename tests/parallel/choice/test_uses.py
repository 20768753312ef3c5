"""A plan is proven in all uses of a model; if it fails in one, another plan is taken."""

import copy
import types

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.choice.skeleton import skeleton_of  # noqa: E402
from modular_converter.parallel.choice.small_instances import unproven_arguments  # noqa: E402
from modular_converter.parallel.engine.base.trials_of_model import (  # noqa: E402
    UNPROVEN,
    Unproven,
    refusing_unproven,
)
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.compare import run_model  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_on_threads  # noqa: E402
from modular_converter.parallel.proof.precision import Subject  # noqa: E402
from modular_converter.parallel.proof.prove import refusal, variants_in_use  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from modular_converter.parallel.tiny.uses import uses_of  # noqa: E402
from modular_converter.parallel.trace.record import record  # noqa: E402
from tests.parallel import used_otherwise  # noqa: E402
from tests.parallel.deceptive import DeceptiveConfig  # noqa: E402
from tests.parallel.plan_of_trace import plan_of_trace  # noqa: E402


IDS = torch.arange(5, 29).view(2, 12)
LEFT = torch.tensor([[0] * 3 + [1] * 9, [1] * 12])
USES = {
    "InLongText": ({"input_ids": IDS.repeat(1, 2)}, "21 tokens"),
    "InShortText": ({"input_ids": IDS[:, :6]}, "one token"),
    "WithPadding": ({"input_ids": IDS, "attention_mask": LEFT}, "padding"),
    "InTraining": ({"input_ids": IDS}, "training"),
    "WithLargeValues": ({"input_ids": IDS}, "the other side of the branch on data in used_otherwise.py"),
    "WithLargeNumbers": ({"input_ids": IDS}, "the other side of the branch on data in used_otherwise.py"),
    "WithLargeLists": ({"input_ids": IDS}, "the other side of the branch on data in used_otherwise.py"),
    "WithLargeEntries": ({"input_ids": IDS}, "the other side of the branch on data in used_otherwise.py"),
    "WithOneLargeEntry": ({"input_ids": IDS}, "1 for those read in used_otherwise.py"),
    "WithLargeArrays": ({"input_ids": IDS}, "large numbers in place of those read in used_otherwise.py"),
    "WithGates": ({"input_ids": IDS, "gate": [torch.randn(2, 12, 64)] * 2}, "gate"),
    "InBlocksOfEight": ({"input_ids": IDS[:, :8]}, "8 tokens"),
    "InNoFives": ({"input_ids": IDS[:, :10]}, "5 tokens"),
    "InFiftyTokens": ({"input_ids": IDS.repeat(1, 5)[:, :50]}, "50 tokens"),
    "InOneRow": ({"input_ids": IDS[:1]}, "one row"),
    "InManyRows": ({"input_ids": IDS.repeat(3, 1)}, "5 rows"),
    "WithManyNumbers": ({"input_ids": IDS.repeat(3, 1)}, "31 tokens"),
    "WithSwitch": ({"input_ids": IDS, "normalise": True}, "normalise=True"),
    "WithNamedKeyword": ({"input_ids": IDS, "gate": torch.tensor(3.0)}, "gate"),
    "WithEmbeddings": ({"inputs_embeds": torch.randn(2, 5, 64)}, "embeddings in place of ids"),
}


def model_of(name):
    torch.manual_seed(1)
    config = DeceptiveConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=96)
    model = getattr(used_otherwise, name)(config)
    if name.startswith("WithLarge"):
        model.embed.weight.data.mul_(100)
    if name == "WithOneLargeEntry":
        model.embed.weight.data[5, 0] = 1000.0
    return model.train(name == "InTraining")


def holds(model, plan, inputs):
    whole = Subject(model, inputs, run_model(copy.deepcopy(model), inputs))
    return check_on_threads(whole, plan, 2).passed


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] if number % 2 else []) for number, one in enumerate(sorted(USES))],
)
def test_a_plan_holds_in_each_use(name):
    model = model_of(name)
    inputs, said = USES[name]
    plan, origin, _ = select_plan(model, None, 2)
    assert said in origin and plan.rules
    assert holds(model, plan, inputs)
    plain = plan_of_trace(record(model_of("WithPadding").eval(), {"input_ids": IDS}))
    assert not holds(model, plain, inputs)


def test_a_branch_whose_other_side_no_run_has_shown_is_warned_of(caplog):
    with caplog.at_level("WARNING"):
        select_plan(model_of("WithLargeSquare"), None, 2)
    assert "WithLargeSquare: no run of the proof has tried negative numbers in place of those read in" in caplog.text


@pytest.mark.parametrize("method", ["forward", "generate"])
def test_an_argument_that_no_run_was_given_is_refused(method):
    model = model_of("WithOddGate")
    _, origin, _ = select_plan(model, None, 2)
    assert "not covered: the argument gate" in origin
    assert unproven_arguments(model) == {"gate"}
    model.__dict__[UNPROVEN] = Unproven(unproven_arguments(model), skeleton_of(model))
    call = types.MethodType(refusing_unproven(method, type(model).forward), model)
    alone = call(IDS, gate=None)
    assert torch.equal(alone[0], type(model).forward(model, IDS)[0])
    said = "WithOddGate was given gate, which no run of the proof .* with it the model runs other operations"
    for args, kwargs in (((IDS,), {"gate": torch.ones(7)}), ((IDS, torch.ones(7)), {})):
        with pytest.raises(ApplyError, match=said):
            call(*args, **kwargs)
    with pytest.raises(ApplyError, match="cannot be tried without data"):
        call(IDS, gate=True)


@pytest.mark.parametrize("method", ["forward", "generate"])
def test_a_tensor_that_only_keywords_take_is_refused_where_the_model_computes_otherwise(method):
    model = model_of("WithKeyword")
    model.__dict__[UNPROVEN] = Unproven(unproven_arguments(model), skeleton_of(model))
    own = type(model).forward

    def called(self, input_ids, **kwargs):
        return own(self, input_ids, **{name: value for name, value in kwargs.items() if name == "gate"})

    called.__name__ = method
    call = types.MethodType(refusing_unproven(method, called), model)
    with pytest.raises(ApplyError, match="WithKeyword was given gate, which no run of the proof"):
        call(IDS, gate=torch.ones(2, 12))
    alone = own(model, IDS)[0]
    assert torch.equal(call(IDS, output_attentions=True)[0], alone)


@pytest.mark.slow
def test_an_argument_that_code_of_the_library_cannot_try_without_data_passes_with_a_warning(caplog):
    small = build(target_of("qwen2_vl"))
    given = {name: value for name, value in small.inputs.items() if not name.startswith(("pixel", "image"))}
    given |= {"pixel_values_videos": small.inputs["pixel_values"], "video_grid_thw": small.inputs["image_grid_thw"]}
    unproven = Unproven(unproven_arguments(small.model), skeleton_of(small.model))
    assert "pixel_values_videos" in unproven.names
    for _ in range(2):
        unproven.refuse(small.model, given)
    (said,) = [one.message for one in caplog.records if "cannot be tried without data" in one.message]
    assert "Qwen2VLModel was given pixel_values_videos, which no run of the proof" in said


def test_an_argument_without_a_proof_passes_where_the_model_computes_as_it_was_proven():
    model = model_of("WithOddGate")
    with_offset = types.MethodType(refusing_unproven("forward", used_otherwise.WithOffset.forward), model)
    model.__class__ = used_otherwise.WithOffset
    model.__dict__[UNPROVEN] = Unproven(frozenset(["offset"]), skeleton_of(model))
    assert torch.equal(with_offset(IDS, offset=torch.zeros(7))[0], with_offset(IDS)[0])
    assert model.__dict__[UNPROVEN].known == {frozenset(["offset"])}


@pytest.mark.slow
def test_one_key_value_head_with_padding():
    small = build(target_of("mixtral", "causal"), {"num_key_value_heads": 1})
    plan, origin, _ = select_plan(small.model, None, 2)
    padded = {**small.inputs, "attention_mask": torch.tensor([[0] * 3 + [1] * 9, [1] * 12])}
    assert "padding" in origin and holds(small.model, plan, padded)


def test_block_sparse_attention_is_among_the_uses():
    target = target_of("big_bird")
    small = build(target)
    long = next(use for use in uses_of(target, small, {}) if use.description == "705 tokens")
    kinds = {type(layer.attention.self).__name__ for layer in long.small.model.encoder.layer}
    assert kinds == {"BigBirdBlockSparseAttention"}


def test_a_model_that_remembers_its_last_call_has_each_use():
    target = target_of(f"{used_otherwise.__name__}.AfterLongerText")
    uses = {use.ratio: use for use in variants_in_use(target, build(target), {})}
    assert {"one token", "padding"} <= uses.keys()
    assert (
        refusal(list(uses.values()), Plan.parse("plan x\nrule layers.*.up colwise\nrule layers.*.down rowwise\n"), 2)
        is None
    )


def test_ids_of_several_codebooks_have_lengths_too():
    target = target_of("dia")
    small = build(target)
    rows, _, books = small.inputs["decoder_input_ids"].shape
    found = next(use for use in uses_of(target, small, {}) if use.description == "one token")
    assert found.small.inputs["decoder_input_ids"].shape == (rows, 1, books)


def test_a_guess_at_an_argument_that_makes_a_large_tensor_is_no_use():
    target = target_of(f"{used_otherwise.__name__}.WithManyChoices")
    found = {use.description for use in uses_of(target, build(target), {})}
    assert "choices" not in found and "one token" in found
