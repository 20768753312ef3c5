"""A model in stages compared with one process, and the cases that are refused."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from modular_converter.parallel.choice.skeleton import Guesses, on_meta
from modular_converter.parallel.engine.stages import scheduled_stage as shared_weights_module
from modular_converter.parallel.engine.stages.in_layout import PipelineInLayout
from modular_converter.parallel.engine.stages.in_layout import _part_of as part_of
from modular_converter.parallel.engine.stages.pipeline import Pipeline
from modular_converter.parallel.engine.stages.scheduled_stage import (
    FirstError,
    ScheduledStage,
    SharedWeight,
    SharedWeights,
    own_loss,
    summed_gradients,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.pipeline.chain import spans
from modular_converter.parallel.pipeline.derive import pipeline_of_trace
from modular_converter.parallel.pipeline.flow import flow_of
from modular_converter.parallel.pipeline.prove import verify_pipeline
from modular_converter.parallel.pipeline.stage import StageModule, copy_without_data, do_not_recompute
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.plans.resolve import Resolution
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.trace.record import record
from tests.parallel.launch import ROOT, lines_of


CPU = torch.device("cpu")
NAMED = ("outputs", "tokens", "steps", "gradients", "weights")


# Tied embeddings, on two processes and on one; experts, whose products need a form without data; layers that give views.
@pytest.mark.parametrize(
    ("families", "cases"),
    [
        (("gpt2",), ("1F1B:1:4",)),
        pytest.param(("gpt2", "mixtral", "opt"), ("1F1B:1:4", "ZBVZeroBubble:2:4"), marks=pytest.mark.slow),
    ],
)
def test_training_in_stages_is_that_of_one_process(families: tuple[str, ...], cases: tuple[str, ...]) -> None:
    found = lines_of(2, ROOT / "utils/prove_stages.py", *families, "--cases", *cases)
    assert [(line["name"], tuple(line["rows"])) for line in found] == [(name, cases) for name in families]
    for line in found:
        for one in (one for ranks in line["rows"].values() for one in ranks):
            assert max(one[kind] for kind in NAMED) < 1e-3, line["name"]
            assert one["share"] < 0.7


def small_llama(layers: int = 3):
    small = build(target_of("llama", "causal"), {"num_hidden_layers": layers})
    inputs = with_mask(small.model, small.inputs)
    return small.model, inputs, pipeline_of_trace(record(small.model, inputs, "llama"))


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
    with Guesses():  # a mask of ones is left out in a run with data
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


@pytest.mark.parametrize(("part", "numbers"), [(None, 2), (own_loss, 1)])
def test_a_step_keeps_the_loss_alone(part: Any, numbers: int) -> None:
    """torch keeps what a last stage returns until its backward: logits would be kept for each micro-batch."""
    model, inputs, plan = small_llama()
    inputs = {**inputs, "labels": inputs["input_ids"], "use_cache": False}
    stage = StageModule(model, plan, range(3)).train()
    flow = flow_of(model, plan, inputs)
    stage.prepare(flow)
    last = ScheduledStage(stage, flow, FirstError(True), CPU, part)
    last.inputs = [inputs]
    found = last(micro_batch=torch.tensor(0))
    assert len(found) == len(last.gives) == numbers
    torch.testing.assert_close(own_loss(last.output(found)), model(**inputs).loss)
    if part is None:
        last.inputs = [{**inputs, "output_hidden_states": True}]
        again = last(micro_batch=torch.tensor(0))  # the error is raised later, on all processes
        assert [(one.shape, one.requires_grad) for one in again] == [(one.shape, True) for one in found]
        assert "another form than in the run without data" in str(last.errors.error)


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
    with torch.no_grad(), Guesses():
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
    plan = pipeline_of_trace(record(model, inputs, "scaled"))
    assert isinstance(plan, PipelinePlan)
    assert verify_pipeline(model, plan, inputs).passed
    flow = flow_of(model, plan, inputs, asks=True)
    assert flow.asked and not flow_of(model, plan, inputs).asked
    first, last = StageModule(model, plan, range(2)), StageModule(model, plan, range(2, 3))
    first.prepare(flow)
    last.prepare(flow)
    torch.testing.assert_close(last(*first(**inputs), **inputs), model(**inputs))


def test_processes_without_losses_sum_the_type_of_those_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor, group: None)
    stages = cast(Pipeline, SimpleNamespace(_place=CPU, _group=None))
    found = [Pipeline._everywhere(stages, losses) for losses in ([], [torch.ones((), dtype=torch.bfloat16)] * 2)]
    assert [one.dtype for one in found] == [torch.float32] * 2 and float(found[1]) == 2.0


@pytest.mark.parametrize("keeps", [True, False])
def test_positions_without_a_mask_mean_what_they_mean_with_a_cache(keeps: bool) -> None:
    model, inputs, _ = small_llama()
    model.config.use_cache = keeps
    stages = cast(Pipeline, SimpleNamespace(_shapes=model))
    ids = inputs["input_ids"]
    alone = {"input_ids": ids, "position_ids": torch.arange(ids.shape[1]).expand(ids.shape)}
    found = Pipeline._as_with_a_cache(stages, alone)
    assert (found is not alone) is keeps
    if keeps:
        assert torch.equal(found.pop("attention_mask"), torch.ones_like(ids)) and found == alone
        del alone["position_ids"]
        assert Pipeline._as_with_a_cache(stages, alone) is alone


def test_stages_of_several_processes_do_not_generate() -> None:
    layout, several = Layout(pp=2, tp=2), SimpleNamespace(size=4)
    stages = cast(PipelineInLayout, SimpleNamespace(_grid=SimpleNamespace(layout=layout, everyone=several)))
    with pytest.raises(ApplyError, match="generate does not run in tp2.pp2: take a layout of stages alone"):
        PipelineInLayout.generate(stages, torch.ones(1, 2, dtype=torch.long))


def test_a_stage_takes_the_part_of_a_plan_for_its_own_modules() -> None:
    model, _, plan = small_llama()
    stage, layout = StageModule(model, plan, range(1, 2)), cast(Any, None)
    names = [f"model.layers.{number}.mlp.up_proj.weight" for number in range(2)]
    paths = [f"model.layers.{number}.mlp" for number in range(2)]
    whole = Resolution(
        dict.fromkeys(names, layout), tuple((one, layout) for one in paths), tuple((one, "x") for one in paths)
    )
    found = part_of(whole, stage)
    assert (
        [*found.pieces] == names[1:]
        and found.hooks == ((paths[1], layout),)
        and found.attributes == ((paths[1], "x"),)
    )


def shared(*names: str) -> tuple[list[torch.nn.Parameter], SharedWeights]:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in names]
    own = [SharedWeight(name, weight, (0, 1)) for name, weight in zip(names, weights)]
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
    monkeypatch.setattr(shared_weights_module, "_sum", lambda gradient, *_: gradient.mul_(2))
    with summed_gradients(weights):
        used.grad = torch.ones(2)
    assert idle.grad is None and used.grad is not None and elsewhere.grad is not None
    assert used.grad.tolist() == [2.0, 2.0] and elsewhere.grad.tolist() == [0.0, 0.0]
