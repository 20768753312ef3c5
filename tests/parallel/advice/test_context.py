"""Layouts that share out sequences: what a device holds, when they are advised, and what is refused."""

from __future__ import annotations

import pytest

from modular_converter.parallel.advice.candidates import Question, advise
from modular_converter.parallel.advice.devices import GIB, Cluster, cluster_of
from modular_converter.parallel.advice.memory import Footprint, LayoutSetting
from modular_converter.parallel.advice.stages import footprint
from modular_converter.parallel.advice.step_time import time_of_step
from modular_converter.parallel.advice.subject import ModelInQuestion, model_in_question
from modular_converter.parallel.costs import CountRequest
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.layout import Layout


SMALL = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 200,
}
TWO = cluster_of("2xH100-80GB")


def question(kind: str = "llama", length: int = 256, **more: object) -> ModelInQuestion:
    return model_in_question(CountRequest(kind, SMALL | more, None, 1, length))


def needs(subject: ModelInQuestion, layout: str, **more: object) -> Footprint:
    setting = LayoutSetting(Layout.parse(layout), 2, "sgd", **more)  # type: ignore[arg-type]
    return footprint(subject, setting, TWO.device)


@pytest.fixture(scope="module")
def llama() -> ModelInQuestion:
    return question()


def test_weights_are_those_of_shards_and_activations_are_halved(llama: ModelInQuestion) -> None:
    shared, sharded = needs(llama, "cp2"), needs(llama, "fsdp2")
    assert (shared.weights, shared.optimizer, shared.gradients) == (
        sharded.weights,
        sharded.optimizer,
        sharded.gradients,
    )
    assert (
        0.5 < shared.peak.activations / sharded.peak.activations < 0.75
    )  # with keys and values of the whole sequence


def test_layers_exchange_keys_and_values(llama: ModelInQuestion) -> None:
    use = llama.use(2, LayoutSetting(Layout(cp=2), 2).run)
    layer = next(one for one in use.segments if one.path == "model.layers.0")
    assert [(one.name, one.context) for one in layer.forward.collectives] == [("all-gather", True)]
    assert [(one.name, one.context) for one in layer.backward.collectives] == [("reduce-scatter", True)]
    assert (
        layer.forward.collectives[0].size == 2 * 128 * 2 * 2 * 32 * 2
    )  # rows, own tokens, both, heads, features, bytes
    assert any(one.masked for one in layer.forward.kernels)


@pytest.mark.slow
def test_windows_make_a_dense_mask() -> None:
    """Of this process's rows and the whole length, and as numbers to add, which layers keep: more than rotated pieces."""
    window, none = (needs(question("mistral", 1024, sliding_window=one), "cp2") for one in (64, None))
    assert window.peak.activations - none.peak.activations > 2 * 2 * 512 * 1024 * 2


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("llama", {"sequence_parallel": True}, "parts of a sequence need a layout with tp"),
        ("llama", {"tokens": 8}, "cp generates no tokens"),
        ("gpt2", {}, "cp: dropout would draw other numbers"),
    ],
)
def test_what_cannot_run_is_refused(kind: str, more: dict[str, object], said: str) -> None:
    subject = question(kind) if kind == "llama" else model_in_question(CountRequest(kind, {"n_layer": 2}, None, 1, 64))
    with pytest.raises(PlanError, match=said):
        needs(subject, "cp2", **more)


def advised(subject: ModelInQuestion, batch: int, cluster: Cluster = TWO) -> set[str]:
    found = advise(subject, Question(cluster, batch, "sgd"))
    return {str(one.setting.layout) for one in found.candidates if one.runs}


@pytest.mark.slow
def test_it_is_a_choice_where_rows_are_too_few(llama: ModelInQuestion) -> None:
    assert "cp2" in advised(llama, 1)
    assert "cp2" not in advised(llama, 2)  # which data ranks share out


LONG = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
}


@pytest.mark.slow
@pytest.mark.parametrize(("length", "gib", "seconds"), [(32768, 16.79, 4.04), (131072, 47.89, 38.0)])
def test_not_below_what_two_gpus_needed(length: int, gib: float, seconds: float) -> None:
    """The figures of docs/train/context-parallel.md."""
    subject = question("llama", length, **LONG)
    setting = LayoutSetting(Layout(cp=2), 1, "sgd", recompute=True)
    found = footprint(subject, setting, TWO.device).allocated / GIB
    assert gib <= found <= 1.05 * gib
    assert 0.8 < time_of_step(subject, setting, TWO).seconds / seconds < 1.2


@pytest.mark.slow
def test_it_is_advised_where_nothing_else_holds_the_activations() -> None:
    subject = question("llama", 131072, **LONG)
    found = advise(subject, Question(TWO, 1, "adamw"))
    assert found.best is not None and found.best.setting.layout == Layout(cp=2)
