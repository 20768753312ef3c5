"""A model in stages beside one process, and what is refused."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from modular_converter.parallel.engine.base.without_data import guesses, on_meta
from modular_converter.parallel.engine.stages import shared_weights as shared_weights_module
from modular_converter.parallel.engine.stages.generate import refuse_other_decoding
from modular_converter.parallel.engine.stages.micro_batches import (
    Batch,
    RowDimensions,
    batch_of,
    refuse_unequal_labels,
)
from modular_converter.parallel.engine.stages.pipeline import Pipeline
from modular_converter.parallel.engine.stages.scheduled_stage import (
    refuse_parts_of_one_result,
    what_was_not_handed_over,
)
from modular_converter.parallel.engine.stages.shared_weights import (
    SharedWeight,
    SharedWeights,
    summed_gradients,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.balance import spans
from modular_converter.parallel.pipeline.derive import derive_pipeline
from modular_converter.parallel.pipeline.flow import flow_of
from modular_converter.parallel.pipeline.part_of_model import copy_without_data, do_not_recompute
from modular_converter.parallel.pipeline.prove import verify_pipeline
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.proof.situations import with_mask
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.trace.record import record


sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "utils"))

from prove_stages import launch


CPU = torch.device("cpu")
NAMED = ("outputs", "tokens", "steps", "gradients", "weights")


def test_training_in_stages_is_that_of_one_process() -> None:
    # Tied embeddings, on two processes and on one; experts, whose products need a form without data; layers that give views.
    found = dict(launch(["gpt2", "mixtral", "opt"], ["1F1B:1:4", "ZBVZeroBubble:2:4"]))
    assert [len(cases) for cases in found.values()] == [2, 2, 2]
    for name, cases in found.items():
        for one in (one for ranks in cases.values() for one in ranks):
            assert max(one[kind] for kind in NAMED) < 1e-3, name
            assert one["share"] < 0.7


def small_llama(layers: int = 3):
    small = build(target_of("llama", "causal"), {"num_hidden_layers": layers})
    inputs = with_mask(small.model, small.inputs)
    return small.model, inputs, derive_pipeline(record(small.model, inputs, "llama"))


def test_a_stage_holds_its_own_layers_alone() -> None:
    model, inputs, plan = small_llama()
    stage = StageModule(model, plan, range(1, 2))
    own, whole = dict(stage.model.named_parameters()), dict(model.named_parameters())
    assert own and all(name.startswith("model.layers.1.") and value is whole[name] for name, value in own.items())
    assert set(stage.model.state_dict()) == set(own)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("recomputed", [True, False])
def test_stages_one_after_the_other_are_the_model(masked: bool, recomputed: bool) -> None:
    model, inputs, plan = small_llama()
    if recomputed:
        model.gradient_checkpointing_enable()
    inputs = {name: value for name, value in inputs.items() if masked or name != "attention_mask"}
    bare = copy_without_data(model)
    do_not_recompute(bare)
    with guesses():  # a mask of ones is left out in a run with data
        flow = flow_of(bare, plan, on_meta(inputs))
    expected = model.train()(**inputs).logits
    expected.square().mean().backward()
    gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    passed = ()
    for span in (range(1), range(1, 3)):
        stage = StageModule(model, plan, span).train()
        stage.prepare(flow)
        assert [tensor.shape for tensor in stage.takes] == [tensor.shape for tensor in passed]
        passed = stage(*passed, **inputs)
    torch.testing.assert_close(passed.logits, expected)
    passed.logits.square().mean().backward()
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.grad, gradients[name])


def test_what_was_not_handed_over_shows() -> None:
    model, inputs, plan = small_llama()
    stage = StageModule(model, plan, range(1, 3))
    stage.prepare(flow_of(model, plan, inputs))
    received = [torch.full(tensor.shape, torch.nan) for tensor in stage.takes]
    assert stage(*received, **inputs).logits.isnan().all()
    other = copy.deepcopy(inputs)
    with pytest.raises(ApplyError, match="knows no shapes"):
        StageModule(model, plan, range(3))(**other)


def test_what_the_model_writes_to_a_blank_hides_nothing() -> None:
    model, inputs, plan = small_llama()
    seen: list[bool] = []

    def zero(module: Any, args: Any, result: torch.Tensor) -> None:
        seen.append(bool(result.isnan().all()))
        result.zero_()

    with torch.no_grad():
        stage = StageModule(model, plan, range(2, 3))
        stage.prepare(flow_of(model, plan, inputs))
        received = [torch.zeros(tensor.shape) for tensor in stage.takes]
        handle = stage.model.get_submodule("model.embed_tokens").register_forward_hook(zero)
        for _ in range(2):  # micro-batches
            stage(*received, **inputs)
        assert seen == [True, True]
        handle.remove()
        stage.model.get_submodule("model.layers.0").register_forward_hook(zero)
        with pytest.raises(ApplyError, match="writes in place to what a layer returns"):
            stage(*received, **inputs)


@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 2)])
def test_results_of_all_layers_reach_the_last_stage(cuts: tuple[int, ...]) -> None:
    model, inputs, plan = small_llama()
    model.set_attn_implementation("eager")
    asked = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad(), guesses():
        flow = flow_of(copy_without_data(model), plan, on_meta(inputs | asked), asks=True)
        expected = model(**inputs, **asked)
    passed = ()
    for span in spans(cuts, 3):
        stage = StageModule(model, plan, span)
        stage.prepare(flow)
        assert [tensor.shape for tensor in stage.takes] == [tensor.shape for tensor in passed]
        with torch.no_grad():
            passed = stage(*passed, **inputs, **asked)
    assert len(expected.hidden_states) == 4 and len(expected.attentions) == 3
    torch.testing.assert_close(dict(passed), dict(expected))


class Scaled(torch.nn.Module):
    """Embeddings scaled before the layers, whose inputs are collected as older models do; a number that is no row's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(9, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, ids: torch.Tensor, table: torch.Tensor | None = None, spread: bool = False) -> dict[str, Any]:
        hidden = self.embed(ids) * 3.0
        if table is not None:
            hidden = hidden + table[ids.clamp(max=1)]
        states = (hidden,)
        for layer in self.layers:
            hidden = layer(hidden)
            states = (*states, hidden)
        return {"states": states} | ({"spread": hidden.std()} if spread else {})


def test_what_is_computed_from_another_stages_result_arrives() -> None:
    torch.manual_seed(0)
    model, inputs = Scaled(), {"ids": torch.arange(6).reshape(2, 3)}
    plan = derive_pipeline(record(model, inputs, "scaled"))
    assert isinstance(plan, PipelinePlan)
    assert verify_pipeline(model, plan, inputs).passed
    flow = flow_of(model, plan, inputs, asks=True)
    first, last = StageModule(model, plan, range(2)), StageModule(model, plan, range(2, 3))
    first.prepare(flow)
    last.prepare(flow)
    torch.testing.assert_close(last(*first(**inputs), **inputs), model(**inputs))


def rows_of(inputs: dict[str, Any]) -> dict[str, int]:
    model = Scaled().to("meta")
    return RowDimensions(lambda found: model(**found), "ids").of(inputs)


def test_rows_are_those_that_grow_with_the_batch() -> None:
    ids = torch.zeros(4, 4, dtype=torch.long)
    assert rows_of({"ids": ids}) == {"ids": 0}
    assert rows_of({"ids": ids, "table": torch.zeros(5, 4)}) == {"ids": 0}
    with pytest.raises(ApplyError, match="table has 4 entries in dimension 0, as many as the batch has rows"):
        rows_of({"ids": ids, "table": torch.zeros(4, 4)})
    with pytest.raises(ApplyError, match="does not run with a row more"):
        rows_of({"ids": ids, "tables": torch.zeros(4, 4)})


def test_rows_may_be_another_dimension() -> None:
    def run(given: dict[str, Any]) -> torch.Tensor:
        return given["ids"] + given["position_ids"].sum(0)

    ids, positions = torch.zeros(3, 5), torch.zeros(3, 3, 5)
    assert RowDimensions(run, "ids").of({"position_ids": positions, "ids": ids}) == {"ids": 0, "position_ids": 1}


def test_a_result_of_the_batch_as_a_whole_is_refused() -> None:
    model = Scaled()
    part, whole = (model(torch.zeros(n, 3, dtype=torch.long), spread=True) for n in (2, 4))
    with pytest.raises(ApplyError, match=r"\['spread'\] of the output is \[\] for the batch"):
        refuse_parts_of_one_result(part, whole, 2)
    refuse_parts_of_one_result({"states": part["states"]}, {"states": whole["states"]}, 2)
    assert what_was_not_handed_over({"a": [torch.ones(2), torch.full((2,), torch.nan)]}).startswith(
        "['a'][1] of the output is NaN"
    )
    assert not what_was_not_handed_over({"a": torch.tensor([1.0, torch.nan]), "b": torch.ones(2, dtype=torch.long)})


IDS = torch.ones(6, 4, dtype=torch.long)
SAME = cast(
    RowDimensions, SimpleNamespace(size=lambda given: 6 if given else 0, of=lambda given: dict.fromkeys(given, 0))
)


@pytest.mark.parametrize(
    ("inputs", "chunks", "said"),
    [
        ({"input_ids": IDS}, 4, "6 rows do not divide into 4 micro-batches: give chunks= one of 1, 2, 3, 6"),
        ({"input_ids": IDS, "use_cache": True}, 2, "keeps no caches"),
        ({"input_ids": IDS, "cache_params": object()}, 2, "keeps no caches"),
        ({}, 2, "input_ids=ids"),
    ],
)
def test_a_batch_that_stages_cannot_serve_is_refused(inputs: dict, chunks: int, said: str) -> None:
    with pytest.raises(ApplyError, match=said):
        batch_of(inputs, chunks, CPU, SAME)


@pytest.mark.parametrize(
    "labels",
    [
        {"shift_labels": torch.tensor([[-100, 1, 1, 1], *[[1] * 4] * 5])},
        {"labels": torch.tensor([[1, 1, 1, -100], *[[1, 1, 1, 1]] * 5])},
    ],
)
def test_labels_that_do_not_count_alike_are_refused(labels: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ApplyError, match="11 to 12 labels"):
        refuse_unequal_labels(Batch(6, labels, {}), 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"output_attentions": True}, "loss alone"), ({"num_items_in_batch": 24}, "mean of micro-batches")],
)
def test_a_step_refuses_what_it_does_not_return(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ApplyError, match=said):
        Pipeline.step(cast(Pipeline, SimpleNamespace(_loss=None, _config=None)), input_ids=IDS, labels=IDS, **given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_beams": 2}, "greedily or by sampling"),
        ({"return_dict_in_generate": True}, "returns ids"),
        ({"cache_implementation": "static"}, "dynamic caches"),
        ({"token_type_ids": IDS}, "token_type_ids: generate in stages takes"),
    ],
)
def test_a_decoding_that_stages_do_not_do_is_refused(options: dict[str, Any], said: str) -> None:
    model, _, _ = small_llama(2)
    with pytest.raises(ApplyError, match=said):
        refuse_other_decoding(model, *model._prepare_generation_config(None, **options))


@pytest.mark.parametrize("loss", [None, torch.nn.functional.mse_loss])
def test_a_target_that_no_loss_takes_is_refused(loss: Any) -> None:
    target = IDS if loss is None else None
    with pytest.raises(ApplyError, match="give both, or neither and labels="):
        Pipeline.step(cast(Pipeline, SimpleNamespace(_loss=loss)), input_ids=IDS, labels=IDS, target=target)


def test_processes_without_losses_sum_the_type_of_those_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor, group: None)
    stages = cast(Pipeline, SimpleNamespace(_place=CPU, _group=None))
    found = [Pipeline._everywhere(stages, losses) for losses in ([], [torch.ones((), dtype=torch.bfloat16)] * 2)]
    assert [one.dtype for one in found] == [torch.float32] * 2 and float(found[1]) == 2.0


def shared(*names: str) -> tuple[list[torch.nn.Parameter], SharedWeights]:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in names]
    own = [SharedWeight(name, weight, cast(Any, None), (0, 1)) for name, weight in zip(names, weights)]
    return weights, SharedWeights(own, names, cast(Any, None), CPU)


def test_a_step_that_fails_leaves_the_gradients_of_earlier_ones() -> None:
    (weight,), weights = shared("weight")
    weight.grad = torch.full((2,), 3.0)
    with pytest.raises(ValueError, match="lost"), summed_gradients(weights):
        raise ValueError("lost")
    assert weight.grad is not None and weight.grad.tolist() == [3.0, 3.0]


def test_a_shared_weight_that_no_process_used_keeps_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    # An optimizer with weight decay would change a weight whose gradient is zero.
    (idle, used, elsewhere), weights = shared("idle", "used", "elsewhere")

    def all_reduce(found: torch.Tensor, group: Any) -> None:
        found += torch.tensor([0.0, 1.0, 1.0])  # the other process

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    monkeypatch.setattr(shared_weights_module, "_sum", lambda gradient, one: gradient.mul_(2))
    with summed_gradients(weights):
        used.grad = torch.ones(2)
    assert idle.grad is None and used.grad is not None and elsewhere.grad is not None
    assert used.grad.tolist() == [2.0, 2.0] and elsewhere.grad.tolist() == [0.0, 0.0]


def test_what_has_no_rows_goes_to_every_micro_batch() -> None:
    inputs = {"input_ids": IDS, "position_ids": torch.arange(4)[None], "flag": True}
    first, *_, last = Batch(6, inputs, {"input_ids": 0}).parts(3)
    assert first["input_ids"].shape == (2, 4) and last["position_ids"].shape == (1, 4) and first["flag"] is True
