"""Predicted activations beside those of a real run, as torch's own counter sees them."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch._C._profiler import _EventType

from modular_converter.parallel.advice import candidates
from modular_converter.parallel.advice import subject as subjects
from modular_converter.parallel.advice.candidates import Question, advise, forecasts_that_fit
from modular_converter.parallel.advice.devices import GIB, cluster_of
from modular_converter.parallel.advice.memory import LayoutSetting, weight_units
from modular_converter.parallel.advice.recording import RecordedGroup
from modular_converter.parallel.advice.report import line_to_run, recommendation
from modular_converter.parallel.advice.stages import _held, footprint, sent_bytes, stages_of
from modular_converter.parallel.advice.step_time import time_of_step
from modular_converter.parallel.advice.subject import ModelInQuestion, RunKind, model_in_question, question_of_model
from modular_converter.parallel.choice.kept_answers import AnswersOfModel
from modular_converter.parallel.choice.sequence_parallel import SequenceParallel, unproven_sequence_plan
from modular_converter.parallel.choice.skeleton import skeleton_of
from modular_converter.parallel.costs import CountRequest, inputs_of
from modular_converter.parallel.errors import AdviceError, PlanError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.modules import recompute_layers
from modular_converter.parallel.pipeline.derive import derive_pipelines
from modular_converter.parallel.pipeline.prove import cuts_of
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.schedule.orders import SCHEDULES
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.tiny.inputs import remember_examples
from modular_converter.parallel.trace.record import KnownResults, RunsWithoutData, record


WIDE = {"hidden_size": 128, "num_attention_heads": 4, "vocab_size": 200}
MODELS = {
    "llama": {**WIDE, "intermediate_size": 256, "num_hidden_layers": 5, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 128, "n_layer": 5, "n_head": 4, "vocab_size": 200},
    "mixtral": {**WIDE, "intermediate_size": 128, "num_hidden_layers": 4, "num_key_value_heads": 2},
    "opt": {**WIDE, "ffn_dim": 256, "num_hidden_layers": 5, "word_embed_proj_dim": 128},
    "gemma2": {**WIDE, "intermediate_size": 256, "num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 32},
    "gpt_neox": {**WIDE, "intermediate_size": 256, "num_hidden_layers": 5},
}
ROWS, LENGTH = 4, 64


def question(kind: str, trains: bool = True, **more: object) -> ModelInQuestion:
    return model_in_question(CountRequest(kind, MODELS[kind] | more, None, 1, LENGTH, trains, "float32"))


def kernel_of_dropout(input: torch.Tensor, p: float, training: bool, inplace: bool = False) -> torch.Tensor:
    return torch.native_dropout(input, p, training)[0] if p and training else input


def real_peak(subject: ModelInQuestion, recompute: bool) -> int:
    """The most bytes of activations, gradients and passing tensors in a forward and backward on the CPU.

    Its dropout is the kernel that GPUs have, which keeps a byte for an entry.
    """
    from torch.distributed._tools.mem_tracker import MemTracker  # takes a second, in each process that collects tests

    model = type(subject.model)(subject.model.config).float()
    model.train(subject.trains)
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = inputs_of(model, replace(subject.request, samples=ROWS), torch.device("cpu"))
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker, patch("torch.nn.functional.dropout", kernel_of_dropout):
        loss = model(**{**inputs, "use_cache": False}).loss
        loss.backward()
    found = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    state = sum(one.numel() * one.element_size() for one in model.parameters())
    return int(found["Total"]) - state - sum(one.numel() * one.element_size() for one in model.buffers())


@pytest.mark.parametrize(
    ("kind", "recompute"),
    [
        pytest.param(kind, recompute, marks=[pytest.mark.slow] if bool(number % 2) is recompute else [])
        for number, kind in enumerate(MODELS)
        for recompute in (False, True)
    ],
)
def test_never_below_the_truth_and_close_to_it(kind: str, recompute: bool) -> None:
    """With plain attention: the fused kernels of GPUs, which the prediction has in mind, are others on the CPU."""
    subject = question(kind)
    subject.model.set_attn_implementation("eager")
    device = cluster_of("H100-80GB").device
    peak = footprint(subject, LayoutSetting(Layout(), ROWS, "sgd", recompute), device).peak
    truth = real_peak(subject, recompute)
    assert truth <= peak.size
    assert peak.size <= 1.15 * truth


class Forgetful(KnownResults):
    def __setitem__(self, key: object, value: object) -> None:
        """Nothing is known to the next operation."""


def test_known_results_of_operations_change_no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they keep alive what a run frees; dropout and the loss have results of several tensors."""
    monkeypatch.setattr(RunsWithoutData, "known", KnownResults())
    subject = question("opt")
    runs = [subject._run(subject._short[0], 2, subjects.RunKind()) for _ in range(2)]
    assert any(RunsWithoutData.known.values())
    monkeypatch.setattr(RunsWithoutData, "known", Forgetful())
    assert runs == [subject._run(subject._short[0], 2, subjects.RunKind())] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_runs_and_plans_are_kept_for_the_next_start(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path))
    device = cluster_of("H100-80GB").device
    runs = [RunKind(), RunKind(recompute=True), RunKind("tp", 2), RunKind("tp", 2, sequence=True)]

    def found() -> list[object]:
        subject = question(kind)
        return [subject.use(3, run) for run in runs] + [
            footprint(subject, LayoutSetting(Layout(tp=2), 3), device),
            str(subject.plan("tp", 2)),
        ]

    first = found()
    monkeypatch.setattr(ModelInQuestion, "_run", lambda *_: pytest.fail("runs again"))
    monkeypatch.setattr(ModelInQuestion, "_fitted", lambda *_: pytest.fail("plans again"))
    assert found() == first
    with pytest.raises(pytest.fail.Exception, match="runs again"):
        model_in_question(CountRequest(kind, MODELS[kind], None, 1, LENGTH + 1, True, "float32")).use(3)


@pytest.mark.parametrize("name", [one.name for one in SCHEDULES.values() if one.steady])
def test_more_micro_batches_hold_no_more_in_a_steady_schedule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(ranks, ranks * groups) for ranks in (2, 3, 5, 8) for groups in (2, 3, 4, 5, 7)]
    short = [_held.__wrapped__(name, *size, True) for size in sizes]
    monkeypatch.setitem(SCHEDULES, name, replace(SCHEDULES[name], steady=False))
    assert short == [_held.__wrapped__(name, *size, True) for size in sizes]


def test_the_first_layers_stand_for_all() -> None:
    deep, device = question("llama", num_hidden_layers=9), cluster_of("H100-80GB").device
    whole = question("llama", num_hidden_layers=9)
    assert len(deep._short[1]) == 9
    from modular_converter.parallel.choice.skeleton import skeleton_of

    whole._short = (skeleton_of(whole.model), {})
    for layout in ("tp1", "fsdp2", "tp2"):  # the plan, too, is that of the first layers
        found = [footprint(one, LayoutSetting(Layout.parse(layout), 3), device) for one in (deep, whole)]
        assert found[0] == found[1]


def test_gradients_and_weights_divide_with_the_layout() -> None:
    subject, device = question("llama"), cluster_of("H100-80GB").device
    whole, sharded, kept = (
        footprint(subject, LayoutSetting(Layout.parse(name), ROWS, reshard=reshard), device)
        for name, reshard in (("ddp2", True), ("fsdp2", True), ("fsdp2", False))
    )
    assert (sharded.weights, sharded.optimizer) == (whole.weights / 2, whole.optimizer / 2)
    assert sharded.peak.gathered < kept.peak.gathered <= whole.peak.gathered
    offloaded = footprint(subject, LayoutSetting(Layout.parse("fsdp2"), ROWS, offload=True), device)
    assert (offloaded.weights, offloaded.optimizer) == (0, 0)


def test_what_each_rank_has_whole_is_named() -> None:
    found = footprint(question("llama"), LayoutSetting(Layout.parse("tp2"), ROWS), cluster_of("H100-80GB").device)
    assert {name.rpartition(".")[0].rpartition(".")[2] for name, _ in found.replicated} == {
        "input_layernorm",
        "post_attention_layernorm",
        "norm",
    }


def test_stages_hold_their_own_layers_and_as_many_micro_batches_as_their_order_has() -> None:
    subject, device = question("llama"), cluster_of("H100-80GB").device
    one = footprint(subject, LayoutSetting(Layout(), 8), device)
    fewer, all_at_once = (
        footprint(subject, LayoutSetting(Layout(pp=2), 8, chunks=8, schedule=name), device)
        for name in ("1F1B", "GPipe")
    )
    assert one.weights / 2 <= fewer.weights < one.weights
    assert fewer.peak.activations < all_at_once.peak.activations


def test_stages_hand_over_the_hidden_states_of_a_micro_batch() -> None:
    subject = question("llama")
    setting = LayoutSetting(Layout(pp=2), 8, chunks=4)
    hidden = sent_bytes(stages_of(subject, setting, subject.groups()))
    assert hidden == 8 // 4 * LENGTH * 128 * 4


def test_answers_on_ranks_run_in_the_form_for_inference() -> None:
    """One kernel puts the rows of experts back, weighs them and adds them up, and a norm is one, as in ``make_inference``."""
    subject = question("mixtral", False)
    whole, divided = (subject.use(ROWS, RunKind("tp", ranks)) for ranks in (1, 2))
    layers = [next(one.forward for one in use.segments if one.path) for use in (whole, divided)]
    assert len(layers[1].kernels) < len(layers[0].kernels) - 10
    assert len(layers[1].collectives) == 2
    assert layers[1].peak < layers[0].peak
    assert divided.kept < whole.kept  # caches


def test_answers_count_caches() -> None:
    subject, device = question("llama", False), cluster_of("H100-80GB").device
    found = footprint(subject, LayoutSetting(Layout(), ROWS, tokens=8), device)
    heads = 2 * 5 * ROWS * LENGTH * 2 * 32 * 4
    assert heads <= found.caches <= heads + 512 * 5  # and the lengths so far
    assert (found.optimizer, found.gradients) == (0, 0)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        (LayoutSetting(Layout(pp=2), 3, chunks=2), "3 rows do not divide into 2 micro-batches"),
        (LayoutSetting(Layout(pp=6), 6, chunks=6), "5 layers do not make 6 stages"),
        (LayoutSetting(Layout(), 3, accumulate=2), "3 rows do not divide into 2 forwards"),
        (LayoutSetting(Layout(pp=2), 4, chunks=2, accumulate=2), "micro-batches in place of several forwards"),
        (LayoutSetting(Layout(dp_shard=2), 4, sequence_parallel=True), "need a layout with tp and without pp"),
        (LayoutSetting(Layout(), 3, weight_type="float32"), "needs data ranks"),
        (LayoutSetting(Layout(), 3, "adam"), "unknown optimizer"),
        (LayoutSetting(Layout(ep=2), 4), "cannot be divided"),
    ],
)
def test_refusals_say_why(setting: LayoutSetting, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        footprint(question("llama"), setting, cluster_of("H100-80GB").device)


class ByValues(torch.nn.Module):
    """A layer that runs a part only for some values, or a plain one."""

    def __init__(self, by_values: bool) -> None:
        super().__init__()
        self.by_values, self.first, self.second = by_values, torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return x if self.by_values and not (x > 0).any() else self.second(x)


class OwnLayers(torch.nn.Module):
    def __init__(self, by_values: bool) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(ByValues(by_values) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_layer_that_runs_for_some_values_alone_is_refused() -> None:
    """Its run without data takes one way, which need not be the longer one."""
    request = CountRequest("own", {}, None, 2, None, True, "float32")
    for by_values in (False, True):
        with torch.device("meta"):
            model = OwnLayers(by_values)
        remember_examples(model, {"x": torch.randn(2, 8)}, False)
        subject = question_of_model(model, request)
        if not by_values:
            assert subject.use(4).kept > 0
            continue
        with pytest.raises(
            AdviceError, match=r"`layers.0.second.weight` does not run without data.* depends on values"
        ):
            subject.use(4)


def test_unknown_devices_name_known_ones() -> None:
    with pytest.raises(AdviceError, match="no device 'H1000'; write one of H100-80GB"):
        cluster_of("2x8xH1000")
    assert str(cluster_of("2x8xh100")) == "2x8xH100-80GB"


def test_dropout_in_attention_is_refused_where_ranks_divide_a_layer() -> None:
    with pytest.raises(AdviceError, match="set the rate to 0"):
        footprint(question("gpt2"), LayoutSetting(Layout(tp=2), 2), cluster_of("H100-80GB").device)


def test_dropout_keeps_a_byte_for_an_entry() -> None:
    device = cluster_of("H100-80GB").device
    drops, plain = (
        footprint(question("opt", dropout=rate), LayoutSetting(Layout(), ROWS, "sgd"), device).peak.activations
        for rate in (0.1, 0.0)
    )
    entries = ROWS * LENGTH * MODELS["opt"]["hidden_size"] * 2 * MODELS["opt"]["num_hidden_layers"]
    assert 0.9 * entries < drops - plain <= entries  # four bytes an entry without the kernel


@pytest.mark.slow
def test_norms_of_heads_under_tensor_ranks() -> None:
    """Their weights are whole, and their gradients are summed over the ranks."""
    more = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 16,
    }
    subject = model_in_question(
        CountRequest("qwen3", {**more, "num_key_value_heads": 2, "vocab_size": 96}, None, 1, LENGTH)
    )
    found = footprint(subject, LayoutSetting(Layout(tp=2), 2), cluster_of("H100-80GB").device)
    assert any("q_norm" in name for name, _ in found.replicated)


@pytest.mark.parametrize("kind", ["gemma2", "llama"])
def test_stages_are_cut_where_the_engine_cuts_them(kind: str) -> None:
    """A tied embedding (gemma2) counts on both sides of the layers."""
    more = {"vocab_size": 700, "num_hidden_layers": 8, "tie_word_embeddings": kind == "gemma2"}
    subject = question(kind, **more)
    setting = LayoutSetting(Layout(pp=2), 4, chunks=2)
    found = stages_of(subject, setting, subject.groups())
    layers = [sum(group.path.startswith("model.layers.") for group in stage.groups) for stage in found]
    small = build(target_of(kind, "causal"), MODELS[kind] | more)
    (plan, *_) = derive_pipelines(record(small.model, with_mask(small.model, small.inputs), kind), skips=True)
    (first,) = cuts_of(small.model, plan, 2)
    assert layers == [first, 8 - first]
    tied = [{part.name for group in stage.groups for part in group.parts if not part.unit} for stage in found]
    assert ("model.embed_tokens.weight" in tied[1]) is (kind == "gemma2")


@pytest.mark.slow
def test_of_layouts_as_fast_the_one_without_options_comes_first() -> None:
    """Where exchanges take the time, layers that are computed again cost none."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    subject = model_in_question(CountRequest("llama", sizes | heads, None, 1, 16, True, "float32"))
    found = forecasts_that_fit(subject, Question(cluster_of("2xCPU"), 4))
    assert [str(one.setting) for one in found][:2] == ["ddp2", "ddp2 (recompute)"]
    times = [one.time.seconds for one in found[:2] if one.time is not None]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize(("restricted", "asked"), [pytest.param(False, [4], marks=pytest.mark.slow), (True, [4, 2])])
def test_the_plan_of_more_ranks_is_that_of_fewer_unless_parts_stay_whole_for_their_number(
    restricted: bool, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, select = list[int](), subjects.select_plan

    def counted(model: torch.nn.Module, given: None, size: int, experts: bool) -> subjects.SelectedPlan:
        found.append(size)
        return select(model, given, size, experts)._replace(restricted=restricted)

    monkeypatch.setattr(subjects, "select_plan", counted)
    monkeypatch.setattr(AnswersOfModel, "answer", lambda self, asked, compute, keeps=bool: compute())
    subject = question("llama", num_key_value_heads=4, num_hidden_layers=2)
    advise(subject, Question(cluster_of("4xCPU"), 4))
    assert sorted(found, reverse=True) == asked
    own = select(subject.model, None, 2).plan
    assert str(subject.plan("tp", 2)) == str(own)


def allocated(model: torch.nn.Module, rows: int, subject: ModelInQuestion, forwards: int = 1) -> int:
    """The most bytes that torch's allocator has given out in a step beyond those before, as its profiler tells.

    Of several steps: with parts of a sequence and recompute, the same step has given out up to 6 % less at its peak, without
    any search for cyclic garbage, too.
    """
    inputs = inputs_of(model, replace(subject.request, samples=rows // forwards), torch.device("cpu"))

    def step() -> None:
        model.zero_grad(set_to_none=True)
        for _ in range(forwards):
            model(**{**inputs, "use_cache": False}).loss.backward()

    step()
    model.zero_grad(set_to_none=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        for _ in range(4):
            step()
    assert profiled.profiler is not None
    events, left = [], list(profiled.profiler.kineto_results.experimental_event_tree())
    while left:
        one = left.pop()
        left += one.children
        if one.tag == _EventType.Allocation:
            events.append((one.start_time_ns, one.extra_fields.alloc_size))
    return max(accumulate(size for _, size in sorted(events, key=lambda event: event[0])))


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_earlier_forwards_of_a_step_leave_their_gradients(kind: str) -> None:
    subject, device = question(kind), cluster_of("H100-80GB").device
    measured = allocated(type(subject.model)(subject.model.config).float().train(), ROWS, subject, 2)
    peak = footprint(subject, LayoutSetting(Layout(), ROWS, "sgd", accumulate=2), device).peak
    assert 1.0 <= peak.size / measured <= 1.01, (peak, measured)


def test_data_ranks_keep_whole_gradients_until_the_last_forward() -> None:
    subject, device = question("llama"), cluster_of("H100-80GB").device
    one, several = (
        footprint(subject, LayoutSetting(Layout(dp_shard=2), ROWS * n, accumulate=n), device) for n in (1, 4)
    )
    whole = sum(unit.numel() * 4 for unit in subject.model.parameters())
    assert 0.9 * whole <= several.peak.gradients <= 1.5 * whole
    assert several.peak.activations == pytest.approx(one.peak.activations, rel=0.01)


def test_sums_in_each_forward_leave_no_whole_gradients() -> None:
    subject, device = question("llama"), cluster_of("H100-80GB").device
    setting = LayoutSetting(Layout(dp_shard=2), ROWS * 4, accumulate=4)
    whole, summed = (footprint(subject, replace(setting, sync_each_batch=each), device) for each in (False, True))
    one = footprint(subject, LayoutSetting(Layout(dp_shard=2), ROWS), device)
    assert one.gradients <= summed.peak.gradients < 0.8 * whole.peak.gradients
    assert one.allocated <= summed.allocated < whole.allocated


def test_a_step_is_cut_until_each_forward_has_one_row() -> None:
    """Teams train with many more forwards a step than fit no memory otherwise; also where rows are no power of two."""
    subject = question("llama", num_key_value_heads=4)
    cluster = cluster_of("2xCPU")
    device = replace(cluster.device, context_gib=0.0, group_gib=0.0)
    for rows in (96, 90, 7):
        least = LayoutSetting(Layout(dp_shard=2), rows, "sgd", recompute=True, accumulate=rows, sync_each_batch=True)
        room = footprint(subject, least, device).total * 1.001 / GIB
        found = advise(subject, Question(replace(cluster, device=replace(device, memory_gib=room)), 2 * rows, "sgd"))
        assert any(one.runs and one.setting.layout == least.layout for one in found.candidates)


def test_a_ladder_is_judged_at_few_steps_of_which_the_first_is_the_first_that_fits() -> None:
    subject, device = question("llama"), cluster_of("2xCPU").device
    ladder = next(candidates._accumulated(LayoutSetting(Layout(dp_shard=2), 720, "sgd")))
    totals = [footprint(subject, one, device).total for one in ladder]
    assert totals == sorted(totals, reverse=True) and len(ladder) == 29
    for number in (0, 3, len(ladder) - 1):
        limit = replace(device, memory_gib=totals[number] / GIB)
        asked = Question(replace(cluster_of("2xCPU"), device=limit), 1440, "sgd")
        found = candidates._of_ladder(subject, ladder, asked)
        assert found[0].setting == ladder[number] and found[-1].setting == ladder[-1] and len(found) <= 4
        assert all(one.runs for one in found)


def test_answers_of_a_model_larger_than_a_node_are_divided_over_several() -> None:
    subject = question("llama", num_attention_heads=8, num_key_value_heads=4, trains=False)
    cluster = cluster_of("2x2xCPU")
    device = replace(cluster.device, context_gib=0.0, group_gib=0.0)
    needs = footprint(subject, LayoutSetting(Layout(tp=4), 1, tokens=8), device).total * 1.001
    asked = Question(replace(cluster, device=replace(device, memory_gib=needs / GIB)), 1, "", 8)
    found = advise(subject, asked)
    assert found.best is not None and str(found.best.setting.layout) == "tp4"
    assert line_to_run(found, "llama").startswith("torchrun --nnodes 2 --nproc-per-node 2 main.py")


def test_weights_on_the_host_move_once_in_each_forward() -> None:
    subject, cluster = question("llama"), cluster_of("2xH100-80GB")
    setting = LayoutSetting(Layout(dp_shard=2), 8, "sgd", recompute=True, offload=True)
    seconds = [
        time_of_step(subject, replace(setting, accumulate=parts), cluster).exchange
        - time_of_step(subject, replace(setting, accumulate=parts, offload=False), cluster).exchange
        for parts in (1, 8)
    ]
    weights = weight_units(setting, subject.groups()).values()
    more = 7 * 2 * sum(one.part for one in weights) / (cluster.device.host_link * 1e9)
    assert seconds[1] - seconds[0] == pytest.approx(more, rel=1e-6)


def test_if_the_optimizers_step_is_what_does_not_fit_another_is_named() -> None:
    subject, cluster = question("llama"), cluster_of("CPU")
    setting = LayoutSetting(Layout(), 1, recompute=True)
    device = replace(cluster.device, context_gib=0.0)
    room = footprint(subject, replace(setting, optimizer="adamw-fused"), device).total * 1.05 / GIB
    asked = Question(replace(cluster, device=replace(device, memory_gib=room)), 1)
    said = recommendation(advise(subject, asked))
    assert said.endswith("in the optimizer's step: --train adamw-fused makes it without tensors in passing.")
    assert advise(subject, replace(asked, optimizer="adamw-fused")).best is not None


@pytest.mark.slow
def test_settings_that_cannot_fit_are_left_out_and_no_other() -> None:
    """Of settings with less memory, only those are not judged of which an earlier one shows that they do not fit."""
    subject = question("llama", num_key_value_heads=4)
    given = cluster_of("2xCPU")
    for part in range(1, 7):
        asked = replace(given, device=replace(given.device, memory_gib=part * 0.01, context_gib=0.0, group_gib=0.0))
        asked_question = Question(asked, 16, "sgd")
        fits = {str(one.setting) for one in forecasts_that_fit(subject, asked_question)}
        levels = candidates._training_settings(subject, asked_question)
        each = [ladder for layout in levels for level in layout for ladder in level]
        found = (one for ladder in each for one in candidates._of_ladder(subject, ladder, asked_question))
        assert fits == {str(one.setting) for one in found if one.runs}


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_one_of_two_tensor_ranks_beside_torchs_allocator(recompute: bool, sequence: bool) -> None:
    """Its exchanges make the tensors that those of processes make; what layers keep when they run again goes one by one."""
    subject = question("llama", tie_word_embeddings=False, num_hidden_layers=8)
    model = type(subject.model)(subject.model.config).float().train()
    plan, group = fitting(subject.plan("tp", 2), model), RecordedGroup(2)
    parts = unproven_sequence_plan(model, plan, skeleton_of(model))
    assert len(parts.products) == 2 * 8
    apply(model, parts.plan if sequence else plan, group)
    if recompute:
        recompute_layers(model)
    if sequence:
        SequenceParallel(model, parts.zone, group, parts.products)
    measured, device = allocated(model, ROWS, subject), cluster_of("H100-80GB").device
    setting = LayoutSetting(Layout(tp=2), ROWS, "sgd", recompute, sequence_parallel=sequence)
    peak = footprint(subject, setting, device).peak
    assert 1.0 <= peak.size / measured <= 1.03, (peak, measured)


def test_a_model_without_parts_of_a_sequence_is_refused_as_it_is_run() -> None:
    setting = LayoutSetting(Layout(tp=2), 2, sequence_parallel=True)
    with pytest.raises(PlanError, match="no module around it in the layer takes and returns whole features"):
        footprint(question("opt", dropout=0.0, attention_dropout=0.0), setting, cluster_of("H100-80GB").device)


def test_a_setting_says_its_forwards() -> None:
    setting = LayoutSetting(Layout(dp_shard=2), 8, accumulate=4, sync_each_batch=True)
    assert str(setting) == "fsdp2 (4 forwards, sync_each_batch)"
    assert str(replace(setting, sync_each_batch=False, recompute=True)) == "fsdp2 (recompute, 4 forwards)"
