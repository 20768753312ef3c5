"""Tensors that bypass layers are sent to the stages that need them, and models with such tensors are divided."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from modular_converter.parallel.choice.skeleton import Guesses, on_meta
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.derive import derive_pipelines, pipeline_of_trace
from modular_converter.parallel.pipeline.flow import flow_of
from modular_converter.parallel.pipeline.prove import proven_pipeline_plan, verify_pipeline
from modular_converter.parallel.pipeline.stage import StageModule, copy_without_data, part_of
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.trace.record import record


class Embedding(nn.Module):
    """Embeddings, and whole numbers that later code needs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.table(ids), (ids > 2).long()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        result = self.linear(hidden).tanh()
        return result if mask is None else result * mask


class Passing(nn.Module):
    """Four layers around which values pass by; ``way`` says how."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.embed, self.norm = way, Embedding(), nn.LayerNorm(4)
        self.layers, self.drop = nn.ModuleList(Layer() for _ in range(4)), nn.Dropout(0.0)
        if way == "sides":
            self.sides = nn.ModuleList(nn.Linear(4, 2) for _ in range(4))

    def forward(self, ids: torch.Tensor) -> Any:
        hidden, kinds = self.embed(ids)
        start, states, sides = hidden, [], []
        if self.way == "kept and written":
            hidden = hidden * 1.0
            start *= 2.0
        if self.way == "again":
            hidden = self.drop(hidden)
        if self.way == "written":
            hidden *= 2.0
        if self.way == "written through a view":
            hidden[:, 0] = hidden[:, 0] * 3.0
        for number, layer in enumerate(self.layers):
            mask = kinds[..., None].float() if self.way == "whole numbers" else None
            if self.way == "asked" and bool((kinds > 0).any()):
                mask = torch.full((1,), 0.5)
            if self.way == "made anew":
                mask = start * (number + 1)
            hidden = layer(hidden, mask=mask)
            states.append(hidden)
            if self.way == "u" and number >= 2:
                hidden = hidden + states[3 - number] * 2.0
            if self.way == "sides":
                sides.append(self.sides[number](hidden.transpose(0, 1)))
        if self.way == "again":
            hidden = self.drop(hidden) + torch.zeros_like(start)  # of which the shape alone counts
        if self.way == "kept and written":
            hidden = hidden + start
        hidden = self.norm(hidden)
        if self.way == "around":
            board = torch.zeros_like(hidden)
            board[:, 1:] = start[:, 1:] + states[0][:, 1:]
            hidden = hidden + board
        return (hidden, *sides, *(states if self.way == "states" else ()))


WAYS = (
    "written",
    "written through a view",
    "whole numbers",
    "asked",
    "made anew",
    "u",
    "sides",
    "around",
    "again",
    "kept and written",
    "states",
)
IDS = {"ids": torch.tensor([[1, 3, 4], [2, 5, 0]])}


def passing(way: str) -> nn.Module:
    torch.manual_seed(2)
    return Passing(way)


@pytest.mark.parametrize("way", WAYS)
def test_what_passes_by_is_there_wherever_the_layers_are_cut(way: str) -> None:
    model = passing(way)
    plan = proven_pipeline_plan(model, IDS, "passing")
    (layers,) = (entry for entry in plan.entries if entry.module == "layers")
    assert "mask" not in layers.inputs
    for stages in (3, 4):
        verdict = verify_pipeline(model, plan, IDS, stages, whole_batch=True)
        assert verdict.passed and verdict.output_error < 1e-6 and verdict.gradient_error < 1e-5


def in_stages(model: nn.Module, plan: PipelinePlan, spans: tuple[range, ...]) -> tuple[Any, list[int]]:
    """Shapes from a run without data, as in training: the result, and how many tensors each stage but the last gives."""
    with Guesses():
        flow = flow_of(copy_without_data(model), plan, on_meta(IDS), skips=True)
    passed: Any = ()
    counts = []
    for span in spans:
        stage = StageModule(model, plan, span)
        stage.prepare(flow)
        passed = stage(*passed, **IDS)
        counts.append(len(passed))
    return passed, counts[:-1]


@pytest.mark.parametrize("way", WAYS)
def test_a_run_without_data_shows_what_training_needs(way: str) -> None:
    model = passing(way)
    plan = proven_pipeline_plan(model, IDS, "passing")
    found, _ = in_stages(model, plan, (range(1), range(1, 3), range(3, 4)))
    torch.testing.assert_close(found[0], model(**IDS)[0])


def test_no_stage_receives_what_no_later_one_needs() -> None:
    model = passing("u")
    plan = proven_pipeline_plan(model, IDS, "passing")
    # Behind layer 2 the result of layer 1 is added, behind layer 3 that of layer 0.
    assert in_stages(model, plan, tuple(range(n, n + 1) for n in range(4)))[1] == [2, 3, 2]
    for way in ("plain", "again", "states"):  # training asks for no states
        model = passing(way)
        assert in_stages(model, proven_pipeline_plan(model, IDS, "passing"), (range(2), range(2, 4)))[1] == [1]


class WithTower(Passing):
    """A tower that runs where there are images; its features enter before the layers, and behind each of them."""

    def __init__(self) -> None:
        super().__init__("plain")
        self.tower = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, ids: torch.Tensor, images: torch.Tensor | None = None) -> torch.Tensor:
        hidden, _ = self.embed(ids)
        features = images
        for block in self.tower if images is not None else ():
            features = block(features)
        if features is not None:
            hidden = torch.where((ids > 2)[..., None], features, hidden)
        for layer in self.layers:
            hidden = layer(hidden)
            if features is not None:
                hidden = hidden + features * 0.5
        return self.norm(hidden)


def test_a_tower_that_did_not_run_is_right_where_it_does() -> None:
    torch.manual_seed(2)
    model = WithTower()
    plan = proven_pipeline_plan(model, IDS, "tower")
    assert not any(entry.module.startswith("tower") for entry in plan.entries)
    verdict = verify_pipeline(model, plan, {**IDS, "images": torch.randn(2, 3, 4)}, 4, whole_batch=True)
    assert verdict.passed and verdict.output_error < 1e-6 and verdict.gradient_error < 1e-5


@pytest.mark.parametrize(
    ("way", "reason"),
    [("around", "without passing the layers between"), ("made anew", "of its own, which the layer before")],
)
def test_a_plan_for_transformers_has_no_place_for_it(way: str, reason: str) -> None:
    said = pipeline_of_trace(record(passing(way), IDS, "passing"))
    assert isinstance(said, str) and reason in said


def test_members_that_run_in_another_order_are_no_chain() -> None:
    class Backwards(Passing):
        def forward(self, ids: torch.Tensor) -> Any:
            hidden, _ = self.embed(ids)
            for layer in reversed(self.layers):  # type: ignore[call-overload]
                hidden = layer(hidden)
            return self.norm(hidden)

    said = derive_pipelines(record(Backwards("plain"), IDS, "backwards"), skips=True)
    assert said == "the members of `layers` do not run in their order"


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("gemma4_text", "layers"),  # each layer takes its part of a tensor that is made before all
        ("qwen3_vl_moe_vision", "blocks"),  # mergers between the blocks, for the output alone
        ("vilt", "encoder.layer"),  # a mask of whole numbers that the embeddings return
        ("table-transformer", "decoder.layers"),  # a mask that is made or not, after a question about its values
        ("timesfm", "layers"),  # layers that write to what they take
        ("granite4_vision", "language_model.layers"),  # a tower that did not run
    ],
)
def test_models_of_transformers_that_hand_on_more(name: str, layers: str) -> None:
    small = build(target_of(name))
    plan = proven_pipeline_plan(small.model, small.inputs, name)
    assert layers in plan.to_library()


def test_what_is_refused_has_the_reason() -> None:
    small = build(target_of("albert"))
    with pytest.raises(ApplyError, match="albert cannot be cut into stages: .* runs more than once"):
        proven_pipeline_plan(small.model, small.inputs, "albert")


def test_a_compiled_layer_has_no_copy() -> None:
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(2))
    model.layers[1].compile()
    with pytest.raises(ApplyError, match="layers.1 was compiled, .* leave compile"):
        part_of(model, ["layers.0"])
