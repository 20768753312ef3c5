"""Decode a few tokens with a model that generates: a single forward does not show wrong sizes of caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from modular_converter.parallel.errors import one_line
from modular_converter.parallel.tiny.copies import seed_cpu


STEPS = 2


def generation_inputs(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The inputs that ``generate`` takes, and the special tokens that a small configuration lacks.

    None for a model that does not generate from ids.
    """
    able = getattr(model, "can_generate", None)
    if able is None or not able() or not isinstance(inputs.get("input_ids"), torch.Tensor):
        return None
    found = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
    config = getattr(model, "generation_config", None)
    special = ("pad_token_id", "bos_token_id", "decoder_start_token_id")
    return {**found, **{name: 0 for name in special if getattr(config, name, None) is None}}


def decoded(model: Any, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Logits of the first decoded tokens, (batch, vocabulary) each; the second token uses the cache.

    Empty for a model that does not generate from ids. Raises the errors of the model's own code.
    """
    given = generation_inputs(model, inputs)
    if given is None:
        return []
    seed_cpu(11)
    with torch.no_grad():
        result = model.generate(
            **given,
            max_new_tokens=STEPS,
            min_new_tokens=STEPS,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    return [step.detach() for step in result.logits]


def decoded_whole(model: Any, inputs: Mapping[str, Any]) -> tuple[list[torch.Tensor], str]:
    """The logits of the whole model; empty, with the reason, if its own ``generate`` fails."""
    try:
        return decoded(model, inputs), ""
    except Exception as error:  # any error of the model's own code
        return [], f"decoding: the model's own generate fails ({one_line(error, 80)})"
