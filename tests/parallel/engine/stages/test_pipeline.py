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
from modular_converter.parallel.engine.stages.micro_batches import batch_of
from modular_converter.parallel.engine.stages.pipeline import Pipeline
from modular_converter.parallel.engine.stages.shared_weights import SharedWeight, summed_gradients
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.derive import derive_pipeline
from modular_converter.parallel.pipeline.flow import flow_of
from modular_converter.parallel.pipeline.stage import StageModule, copy_without_data, do_not_recompute
from modular_converter.parallel.proof.situations import with_mask
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.trace.record import record


sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "utils"))

from prove_stages import launch


CPU = torch.device("cpu")
NAMED = ("outputs", "steps", "gradients", "weights")


def test_training_in_stages_is_that_of_one_process() -> None:
    # Tied embeddings, on two processes and on one; experts, whose products need a form without data; layers that give views.
    rows = launch(["gpt2", "mixtral", "opt"], ["1F1B:1:4", "ZBVZeroBubble:2:4"])
    assert len(rows) == 6
    for case, ranks in rows.items():
        for found in ranks:
            assert max(found[kind] for kind in NAMED) < 1e-3, case
            assert found["share"] < 0.7


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


IDS = torch.ones(6, 4, dtype=torch.long)


@pytest.mark.parametrize(
    ("inputs", "chunks", "said"),
    [
        ({"input_ids": IDS}, 4, "6 rows do not divide into 4 micro-batches: give chunks= one of 1, 2, 3, 6"),
        ({"input_ids": IDS, "use_cache": True}, 2, "caches are not kept by stages"),
        ({"input_ids": IDS, "output_attentions": True}, 2, "no stage has the results of all layers"),
        ({}, 2, "input_ids=ids"),
        ({"input_ids": IDS, "labels": IDS, "num_items_in_batch": 24}, 2, "mean of micro-batches"),
        ({"input_ids": IDS, "shift_labels": torch.tensor([[-100, 1, 1, 1], *[[1] * 4] * 5])}, 2, "11 to 12 labels"),
        ({"input_ids": IDS, "labels": torch.tensor([[1, 1, 1, -100], *[[1, 1, 1, 1]] * 5])}, 2, "11 to 12 labels"),
    ],
)
def test_a_batch_that_stages_cannot_serve_is_refused(inputs: dict, chunks: int, said: str) -> None:
    with pytest.raises(ApplyError, match=said):
        batch_of(inputs, None, chunks, CPU)


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


def test_a_step_that_fails_leaves_the_gradients_of_earlier_ones() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 3.0)
    shared = [SharedWeight("weight", weight, cast(Any, None), (0, 1))]
    with pytest.raises(ValueError, match="lost"), summed_gradients(shared):
        raise ValueError("lost")
    assert weight.grad is not None and weight.grad.tolist() == [3.0, 3.0]


def test_what_has_other_rows_goes_to_every_micro_batch() -> None:
    batch = batch_of({"input_ids": IDS, "position_ids": torch.arange(4)[None], "flag": True}, None, 3, CPU)
    first = batch.first(3)
    assert first["input_ids"].shape == (2, 4) and first["position_ids"].shape == (1, 4) and first["flag"] is True
