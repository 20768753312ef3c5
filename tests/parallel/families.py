"""Published model classes at configurations of their own: other depths, ratios of heads, widths, lengths, padding, labels
and adapters. `parallelize` must give the outputs of one device, and its plan the gradients.
"""

from __future__ import annotations

import copy
import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modular_converter.parallel.api import parallelize
from modular_converter.parallel.choice.select_plan import select_plan
from modular_converter.parallel.errors import PlanError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.judge import OUTPUT_TOLERANCE, relative_error
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.tiny.fields import config_fields
from modular_converter.parallel.trace.record import tensors_in


FAMILIES = [
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Gemma2ForCausalLM",
    "Phi3ForCausalLM",
    "StableLmForCausalLM",
    "Starcoder2ForCausalLM",
    "Olmo2ForCausalLM",
    "CohereForCausalLM",
    "GraniteForCausalLM",
    "MixtralForCausalLM",
    "Qwen2MoeForCausalLM",
    "GPT2LMHeadModel",
    "GPTNeoXForCausalLM",
    "GPTJForCausalLM",
    "OPTForCausalLM",
    "BloomForCausalLM",
    "FalconForCausalLM",
    "BertForMaskedLM",
    "RobertaForMaskedLM",
    "DebertaV2ForMaskedLM",
    "T5ForConditionalGeneration",
    "BartForConditionalGeneration",
    "ViTForImageClassification",
]
_HEADS = r"^(num_attention_heads|n_heads?|num_heads|(en|de)coder_attention_heads)$"
_FIELDS = {
    "depth": r"^(num_hidden_layers|n_layers?|num_(decoder_)?layers|(en|de)coder_layers)$",
    "heads": _HEADS,
    "groups": r"^num_(key_value|kv)_heads$",
    "width": r"^(hidden_size|n_embd|d_model|word_embed_proj_dim)$",
    "inner": r"^(intermediate_size|d_ff|ffn_dim|(en|de)coder_ffn_dim|n_inner|moe_intermediate_size)$",
    "vocabulary": r"^vocab_size$",
}
_ADAPTED = re.compile(r"\.(q|query|q_proj|query_key_value|qkv_proj|c_attn)$")


@dataclass(frozen=True)
class Variation:
    """One configuration and one batch.

    Attributes:
        padding: the side on which the first row is padded; empty for none.
        adapters: whether query projections get a low-rank part after the model was made.
    """

    depth: int
    heads: int
    groups: int
    width: int
    inner: int
    vocabulary: int
    length: int
    padding: str = ""
    labels: bool = False
    adapters: bool = False

    def __str__(self) -> str:
        sizes = f"{self.depth} layers, {self.heads}/{self.groups} heads, width {self.width}, {self.length} tokens"
        more = (
            [f"padded {self.padding}"] * bool(self.padding) + ["labels"] * self.labels + ["adapters"] * self.adapters
        )
        return ", ".join([sizes, *more])


VARIATIONS = (
    Variation(4, 12, 4, 96, 200, 106, 13, "left", labels=True),
    Variation(1, 4, 2, 64, 144, 134, 29, "right"),
    Variation(3, 6, 6, 96, 88, 118, 7, labels=True, adapters=True),
)


class Adapted(nn.Linear):
    """A linear layer with a low-rank part beside it, as adapters have it."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__(inner.in_features, inner.out_features, inner.bias is not None)
        self.load_state_dict(inner.state_dict())
        self.down, self.up = nn.Linear(inner.in_features, 4, bias=False), nn.Linear(4, inner.out_features, bias=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + self.up(self.down(input))


def compared(family: str, variation: Variation, session: Any = None) -> str:
    """``equal``, or the difference or refusal in words; without a session by the plan on threads alone."""
    try:
        model: Any = _made(family, variation)
        inputs = _inputs(model, variation)
        plan, *_ = select_plan(model, None, 2)
        if not plan.rules:
            return "nothing is sharded"
        verdict = check_on_threads(subject_of(copy.deepcopy(model), inputs, second=False), plan, 2)
        if not verdict.passed:
            return f"differs: {verdict.layer} {verdict.reason}".strip()
        error = _on_ranks(model, inputs, plan, session) if session is not None else 0.0
    except PlanError as refusal:
        return f"refused: {one_line(refusal)}"
    except Exception as error_of_model:  # one model must not stop the others
        return f"failed: {one_line(error_of_model)}"
    return "equal" if error <= OUTPUT_TOLERANCE else f"outputs on ranks differ by {error:.1e}"


def _made(family: str, variation: Variation) -> torch.nn.Module:
    target = target_of(f"transformers.{family}")
    known = [field.name for field in config_fields(target.load()[1])]
    patterns = _FIELDS.items()
    sizes = {
        name: getattr(variation, kind) for kind, pattern in patterns for name in known if re.search(pattern, name)
    }
    model = build(target, sizes).model
    if variation.adapters:
        torch.manual_seed(5)
        for path, module in list(model.named_modules()):
            if type(module) is nn.Linear and _ADAPTED.search(path):
                model.set_submodule(path, Adapted(module))
    return model.eval()


def _inputs(model: Any, variation: Variation) -> dict[str, Any]:
    generator, taken = torch.Generator().manual_seed(9), inspect.signature(model.forward).parameters
    if "input_ids" not in taken:
        size = model.config.image_size
        found = {"pixel_values": torch.randn(3, model.config.num_channels, size, size, generator=generator)}
        return found | ({"labels": torch.tensor([0, 1, 1])} if variation.labels else {})
    ids = torch.randint(5, variation.vocabulary - 2, (3, variation.length), generator=generator)
    found = {"input_ids": ids, "use_cache": False} if "use_cache" in taken else {"input_ids": ids}
    if variation.padding:
        mask = torch.ones_like(ids)
        mask[0, slice(0, 3) if variation.padding == "left" else slice(-3, None)] = 0
        found["attention_mask"] = mask
    if variation.labels:
        found["labels"] = ids.clone()
    if "decoder_input_ids" in taken:
        found["decoder_input_ids"] = ids.flip(1)
    return found


def _on_ranks(model: Any, inputs: dict[str, Any], plan: Plan, session: Any) -> float:
    """The largest deviation of an output of `parallelize` from one device."""

    def outputs() -> list[torch.Tensor]:
        with torch.no_grad():
            return [tensor.clone() for tensor in tensors_in(model(**inputs)) if tensor.is_floating_point()]

    want = outputs()
    parallelize(model, plan=plan, session=session, probe=False)
    try:
        found = outputs()
    finally:
        if not session.ended:
            model.cpu()
    if len(found) != len(want):
        return float("inf")
    return max(relative_error(one, other) for one, other in zip(found, want))
