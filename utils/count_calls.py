"""Python functions that a forward and a step call: `torchrun --nproc-per-node 2 utils/count_calls.py llama bert`.

The host's time of a short forward is that of its Python, which differs between machines and with their load; the number
of calls does not. Each model is small, with many layers. The table compares one process with two, in the form for
inference and in that for training: a forward without gradients, and a step (gradients set to none, forward, backward).
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from modular_converter.parallel import parallelize


_SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 128}
_KEYS: dict[str, Any] = {"num_key_value_heads": 4, "head_dim": 16}
_EXPERTS: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2}
_T5: dict[str, Any] = {"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 16, "vocab_size": 128}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (AutoModelForCausalLM, {**_SIZES, **_KEYS, "num_hidden_layers": 32}),
    "qwen3_moe": (AutoModelForCausalLM, {**_SIZES, **_KEYS, **_EXPERTS, "num_hidden_layers": 16}),
    "bert": (AutoModel, {**_SIZES, "num_hidden_layers": 32}),
    "t5": (AutoModelForSeq2SeqLM, {**_T5, "decoder_start_token_id": 0}),
}


def calls(work: Callable[[Any, dict[str, Any]], None], model: Any, given: dict[str, Any]) -> int:
    """The Python functions that the last of five runs calls."""
    found = 0

    def count(frame: Any, event: str, given: Any) -> None:
        nonlocal found
        found += event == "call"

    for _ in range(4):
        work(model, given)
    sys.setprofile(count)
    try:
        work(model, given)
    finally:
        sys.setprofile(None)
    return found


def forward(model: Any, given: dict[str, Any]) -> None:
    """A forward without gradients."""
    with torch.no_grad():
        model(**given)


def step(model: Any, given: dict[str, Any]) -> None:
    """A step without an optimizer, which differs between training loops."""
    for one in model.parameters():
        one.grad = None
    found = model(**given)
    (found.logits if hasattr(found, "logits") else found[0]).pow(2).mean().backward()


def row(kind: str) -> str:
    """The line of a model."""
    made, sizes = MODELS[kind]
    torch.manual_seed(0)
    model = made.from_config(AutoConfig.for_model(kind, **sizes)).eval()
    ids = torch.arange(3, 11).view(1, 8)
    given = {"input_ids": ids} | ({"decoder_input_ids": ids} if kind == "t5" else {})
    one = [calls(work, model, given) for work in (forward, step)]
    quick = parallelize(copy.deepcopy(model), inference=True)
    several = parallelize(model, layout=f"tp{os.environ['WORLD_SIZE']}")
    found = [calls(forward, quick, given)]
    found += [calls(work, several, given) for work in (forward, step)]
    ratios = [f"{now:,} ({now / before:.2f} ×)" for now, before in zip(found, (one[0], *one))]
    return f"| {kind} | {one[0]:,} | {ratios[0]} | {ratios[1]} | {one[1]:,} | {ratios[2]} |"


def main() -> None:
    """Print the table from the first process."""
    rows = [row(kind) for kind in sys.argv[1:] or MODELS]
    if os.environ["RANK"] == "0":
        print("| model | forward, one process | form for inference | form for training | step, one process | of two |")
        print("|---|---|---|---|---|---|", *rows, sep="\n", flush=True)


if __name__ == "__main__":
    main()
