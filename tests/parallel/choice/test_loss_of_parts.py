"""Which losses of the library's models are means over parts of a batch, and which are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.choice.loss_of_parts import (  # noqa: E402
    alike,
    divides_by_items,
    is_no_mean_of_parts,
    mixed_result,
    single_rows,
)
from modular_converter.parallel.tiny.build import Target, build, target_of  # noqa: E402
from modular_converter.parallel.torch_switches import default_type  # noqa: E402


TOKENS, ROWS = torch.ones(3, 7, dtype=torch.long), torch.ones(3, dtype=torch.long)


def model_of(name: str) -> Any:
    import transformers

    if name.islower():
        return build(target_of(name) if name == "clip" else target_of(name, "causal")).model
    kind: Any = getattr(transformers, name)
    config = kind.config_class
    paths = (f"{one.__module__}.{one.__qualname__}" for one in (kind, config))
    return build(Target(name, *paths)).model


@pytest.mark.parametrize(
    ("name", "labels", "does"), [("llama", TOKENS, True), ("BertForSequenceClassification", ROWS, False)]
)
def test_whether_a_loss_divides_by_the_number_of_items(name: str, labels: Any, does: bool) -> None:
    assert divides_by_items(model_of(name), labels) == does


@pytest.mark.parametrize(
    ("name", "labels", "options"),
    [
        ("llama", TOKENS, {}),
        ("mixtral", TOKENS, {}),
        ("clip", None, {}),
        ("BertForSequenceClassification", ROWS, {}),
        ("SegformerForSemanticSegmentation", torch.ones(3, 9, 9, dtype=torch.long), {}),
        ("WhisperForConditionalGeneration", TOKENS, {}),
    ],
)
def test_a_mean_is_one(name: str, labels: Any, options: dict[str, Any]) -> None:
    assert not is_no_mean_of_parts(model_of(name), labels, options)
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_no_mean_of_parts(model_of(name), labels, options)


def test_a_loss_of_one_number_is_a_mean_also_when_a_forward_has_set_its_kind() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64, num_labels=1
    )
    model = BertForSequenceClassification(config)
    model(input_ids=TOKENS, labels=torch.ones(3))
    assert model.config.problem_type == "regression"
    assert not is_no_mean_of_parts(model, torch.ones(3), {})


@pytest.mark.parametrize(
    ("name", "labels", "options"),
    [
        ("mixtral", TOKENS, {"output_router_logits": True}),  # how evenly all rows use experts
        ("clip", None, {"return_loss": True}),  # each text is compared with all images
        ("Wav2Vec2ForCTC", TOKENS, {}),  # a sum
    ],
)
def test_what_is_none_is_noticed(name: str, labels: Any, options: dict[str, Any]) -> None:
    model = model_of(name)
    assert is_no_mean_of_parts(model, labels, options)
    if name == "mixtral":
        model.config.output_router_logits = True
        assert is_no_mean_of_parts(model, labels, {})


@pytest.mark.parametrize(
    ("forward", "mixes"),
    [
        (lambda x: x.cumsum(1), False),
        (lambda x: x[x.norm(dim=1).argsort()][x.norm(dim=1).argsort().argsort()], False),
        (lambda x: x + torch.rand_like(x), False),  # other numbers in each call
        (lambda x: x / torch.zeros_like(x).where(x > 0, 1.0), False),  # infinities
        (lambda x: x - x.mean(0), True),
        (lambda x: x / len(x), True),
        (lambda x: x.cumsum(0), True),
        (lambda x: x.flip(0).cumsum(0).flip(0), True),
        (lambda x: x @ x.T, True),
        (lambda x: (x - x.mean(0)).flatten(), True),
        (lambda x: x.flatten(), False),
        (lambda x: x / x.std(0), True),  # NaN alone
        (lambda x: x.unflatten(0, (-1, 2)).flip(1).flatten(0, 1) if len(x) > 1 else x, True),
    ],
)
def test_rows_that_depend_on_others_are_found(forward: Any, mixes: bool) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = forward(x)
            return found

    rows = {"x": torch.arange(1.0, 13.0).view(4, 3).sin()}
    assert (mixed_result(Net(), rows, single_rows(rows, 4)) is not None) is mixes


@pytest.mark.parametrize("name", ["llama", "mixtral", "clip"])
def test_rows_of_the_library_do_not(name: str) -> None:
    small = build(target_of(name))
    assert mixed_result(small.model, small.inputs, single_rows(small.inputs), sizes=False) is None
    # CLIP returns a table of each text with each image.
    assert (mixed_result(small.model, small.inputs, single_rows(small.inputs)) is not None) is (name == "clip")


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_another_default_type_changes_no_answer(kind: torch.dtype) -> None:
    with default_type(kind):
        assert not is_no_mean_of_parts(model_of("llama"), TOKENS, {})


def test_alike() -> None:
    one = torch.tensor([1.0, torch.inf, torch.nan])
    assert alike(one, one.clone(), 0.0)
    for other in (
        [1.0, -torch.inf, torch.nan],
        [1.0, torch.inf, 2.0],
        [torch.nan, torch.inf, torch.nan],
        [1.1, torch.inf, torch.nan],
    ):
        assert not alike(torch.tensor(other), one, 1e-3) and not alike(one, torch.tensor(other), 1e-3)
    assert alike(torch.tensor([1.0, 1e-3]), torch.tensor([1.0, 0.0]), 1e-2) and alike(
        torch.zeros(2), torch.ones(2), 0.0, 2.0
    )
