"""Which losses of the library's models are means over parts of a batch, and which are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.choice.loss_of_parts import is_no_mean_of_parts  # noqa: E402
from modular_converter.parallel.tiny.build import Target, build, target_of  # noqa: E402


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
