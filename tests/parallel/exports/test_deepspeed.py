"""The form of DeepSpeed's AutoTP; `utils/train_exports.py` trains a step with DeepSpeed itself."""

import json
import re

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.exports.export import TOOLS, export  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.tiny.build import target_of  # noqa: E402


def test_layers_and_gradients_of_norms_are_said_and_the_vocabulary_is_lost():
    derived = derive_model(target_of("qwen3"))
    found = export(derived, TOOLS["deepspeed"])
    config = json.loads(found.text)["tensor_parallel"]["partition_config"]
    specs = {spec["patterns"][0]: spec for spec in config["layer_specs"]}
    assert not config["use_default_specs"] and list(found.lost) == ["embed_tokens.weight"]
    norm = specs[r"(model\.)?layers\.\d+\.self_attn\.q_norm\.[^.]+$"]
    assert norm["partition_type"] == "skip" and norm["grad_allreduce"]
    assert specs[r"(model\.)?layers\.\d+\.self_attn\.o_proj\.weight$"]["partition_type"] == "row"
    for model, prefix in ((derived.small.model, ""), (derived.small.model, "model.")):
        names = [prefix + name for name, _ in model.named_parameters()]
        hit = [name for name in names if any(re.match(pattern, name) for pattern in specs)]
        assert len(hit) == 9 * 2 and not any("layernorm" in name or "embed" in name for name in hit)
    assert found.memory.exported > found.memory.full


@pytest.mark.slow
def test_integers_that_deepspeed_divides_by_their_names_are_checked():
    """It divides `embed_dim` of every module with cut weights, which is right where the plan asks for it."""
    assert export(derive_model(target_of("opt")), TOOLS["deepspeed"]).plan.attributes
    found = export(derive_model(target_of("convbert")), TOOLS["deepspeed"])
    assert "self.key" not in found.text and "intermediate" in found.text
    reason = found.lost["encoder.layer.*.attention.self.key.weight"]
    assert reason.endswith("all_head_size is read by the model's code, and DeepSpeed divides it")


class Attention(torch.nn.Module):
    """Bare parameters beside a row-wise layer with a bias, as sam's attention has them."""

    def __init__(self):
        super().__init__()
        self.rel_pos, self.qkv, self.proj = (
            torch.nn.Parameter(torch.ones(2)),
            torch.nn.Linear(4, 4),
            torch.nn.Linear(4, 4),
        )


def test_gradients_of_a_modules_own_parameters_are_summed_and_no_others():
    """A bias of a row-wise layer within has a whole gradient on each device, which a sum would double."""
    plan = Plan.parse(
        "plan x\nrule attn.qkv colwise\nrule attn.proj rowwise\nrule attn replicated_with_grad_allreduce\n"
    )
    config = json.loads(TOOLS["deepspeed"].text(plan, torch.nn.ModuleDict({"attn": Attention()})))
    specs = config["tensor_parallel"]["partition_config"]["layer_specs"]
    summed = next(spec["patterns"][0] for spec in specs if spec.get("grad_allreduce"))
    assert re.match(summed, "attn.rel_pos") and not re.match(summed, "attn.proj.bias")


def test_a_model_that_does_not_tell_its_embeddings_is_refused():
    with pytest.raises(PlanError, match="DeepSpeed asks for the input embeddings of the model"):
        export(derive_model(target_of("clipseg")), TOOLS["deepspeed"])
