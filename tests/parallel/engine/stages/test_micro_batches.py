"""How a batch is divided into micro-batches, and the batches, options and results that are refused."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from modular_converter.parallel.engine.stages.generate import refuse_other_decoding
from modular_converter.parallel.engine.stages.micro_batches import (
    Batch,
    RowDimensions,
    batch_of,
    refuse_hooks,
    refuse_unequal_labels,
    refuse_what_a_step_lacks,
)
from modular_converter.parallel.engine.stages.pipeline import Pipeline
from modular_converter.parallel.engine.stages.scheduled_stage import (
    FirstError,
    ScheduledStage,
    refuse_parts_of_one_result,
    what_was_not_handed_over,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.flow import LayerFlow
from modular_converter.parallel.pipeline.stage import StageModule
from tests.parallel.engine.stages.test_pipeline import CPU, Scaled, small_llama


def rows_of(inputs: dict[str, Any]) -> dict[str, int]:
    model = Scaled().to("meta")
    return RowDimensions(lambda found: model(**found), "ids").of(inputs)


def test_rows_are_those_that_grow_with_the_batch() -> None:
    ids = torch.zeros(4, 4, dtype=torch.long)
    assert rows_of({"ids": ids}) == {"ids": 0}
    assert rows_of({"ids": ids, "table": torch.zeros(5, 4)}) == {"ids": 0}
    with pytest.raises(ApplyError, match="table has 4 entries in dimension 0, as many as the batch has rows"):
        rows_of({"ids": ids, "table": torch.zeros(4, 4)})
    with pytest.raises(ApplyError, match=r"does not run with these inputs \(TypeError: .*'tables'"):
        rows_of({"ids": ids, "tables": torch.zeros(4, 4)})
    four = RowDimensions(lambda given: given["ids"] + given["ids"].new_zeros(4, 1), "ids")
    with pytest.raises(ApplyError, match="does not run with one more row"):
        four.of({"ids": ids})


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
        "['a'][1] of the output is all NaN"
    )
    assert not what_was_not_handed_over({"a": torch.tensor([1.0, torch.nan]), "b": torch.ones(2, dtype=torch.long)})


IDS = torch.ones(6, 4, dtype=torch.long)


SAME = cast(
    RowDimensions,
    SimpleNamespace(
        size=RowDimensions(lambda given: None, "input_ids").size, of=lambda given: dict.fromkeys(given, 0)
    ),
)


@pytest.mark.parametrize(
    ("inputs", "chunks", "said"),
    [
        ({"input_ids": IDS}, 4, "6 rows do not divide into 4 micro-batches: give chunks= one of 1, 2, 3, 6"),
        ({"input_ids": IDS.repeat(4, 1)}, 7, "24 rows do not divide .* one of 3, 4, 6, 8, 12, 24$"),
        ({"input_ids": IDS, "use_cache": True}, 2, "keeps no caches"),
        ({"input_ids": IDS, "cache_params": object()}, 2, "keeps no caches"),
        ({"input_ids": IDS[:0]}, 2, "the batch has no rows"),
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


@pytest.mark.parametrize("method", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_on_a_gradient_is_refused(method: str) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    handle = getattr(weight, method)(lambda _: None)
    with pytest.raises(ApplyError, match="up has a hook on its gradient"):
        refuse_hooks({"other": torch.nn.Parameter(torch.ones(2)), "up": weight})
    handle.remove()
    refuse_hooks({"up": weight})


def _batch_of_step(pipeline: SimpleNamespace, inputs: dict[str, Any], target: torch.Tensor | None) -> None:
    Pipeline._batch_of_step(cast(Pipeline, pipeline), (), inputs, target)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"output_attentions": True}, "only the loss"), ({"num_items_in_batch": 24}, "mean of micro-batches")],
)
def test_a_step_refuses_what_it_does_not_return(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ApplyError, match=said):
        _batch_of_step(
            SimpleNamespace(_untried_loss=False, _loss=None, _shapes=None),
            {"input_ids": IDS, "labels": IDS, **given},
            None,
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_beams": 2}, "greedily or by sampling"),
        ({"return_dict_in_generate": True}, "returns ids"),
        ({"cache_implementation": "static"}, "dynamic caches"),
        ({"stop_strings": ["x"]}, "neither stop_strings nor"),
        ({"prefill_chunk_size": 2}, "neither stop_strings nor"),
        ({"token_type_ids": IDS}, "token_type_ids: generate in stages takes"),
    ],
)
def test_a_decoding_that_stages_do_not_do_is_refused(options: dict[str, Any], said: str) -> None:
    model, _, _ = small_llama(2)
    with pytest.raises(ApplyError, match=said):
        refuse_other_decoding(model, *model._prepare_generation_config(None, **options))


def test_inputs_in_order_have_the_names_of_the_forward() -> None:
    model, _, _ = small_llama(2)
    named = functools.partial(Pipeline._named, cast(Pipeline, SimpleNamespace(_shapes=model)))
    assert named((IDS,), {"labels": IDS}) == {"input_ids": IDS, "labels": IDS}
    with pytest.raises(ApplyError, match="multiple values for argument 'input_ids'"):
        named((IDS,), {"input_ids": IDS})
    with pytest.raises(ApplyError, match="99 inputs in order: the forward takes input_ids, attention_mask"):
        named((IDS,) * 99, {})


def test_a_result_that_micro_batches_do_not_share_is_refused() -> None:
    output = SimpleNamespace(output={"loss": torch.ones(()), "state": object()})
    with pytest.raises(ApplyError, match="the model returns a object, which micro-batches do not share"):
        ScheduledStage(cast(StageModule, None), cast(LayerFlow, output), FirstError(True), CPU)


@pytest.mark.parametrize("loss", [None, torch.nn.functional.mse_loss])
def test_a_target_that_no_loss_takes_is_refused(loss: Any) -> None:
    target = IDS if loss is None else None
    with pytest.raises(ApplyError, match="give both, or neither and labels="):
        _batch_of_step(SimpleNamespace(_untried_loss=False, _loss=loss), {"input_ids": IDS, "labels": IDS}, target)


def test_what_has_no_rows_goes_to_every_micro_batch() -> None:
    inputs = {"input_ids": IDS, "position_ids": torch.arange(4)[None], "flag": True}
    first, *_, last = Batch(6, inputs, {"input_ids": 0}).parts(3)
    assert first["input_ids"].shape == (2, 4) and last["position_ids"].shape == (1, 4) and first["flag"] is True


def test_results_of_all_layers_that_the_configuration_alone_asks_for_are_refused() -> None:
    asks, not_asked = SimpleNamespace(output_hidden_states=True), SimpleNamespace(output_hidden_states=False)
    with pytest.raises(ApplyError, match="output_hidden_states: a step returns only the loss"):
        refuse_what_a_step_lacks({}, asks)
    refuse_what_a_step_lacks({"output_hidden_states": False}, asks)
    refuse_what_a_step_lacks({}, not_asked)
    with pytest.raises(ApplyError, match="num_items_in_batch: a step takes the mean"):
        refuse_what_a_step_lacks({"num_items_in_batch": 3}, not_asked)
