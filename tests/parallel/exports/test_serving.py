"""The forms of vLLM and SGLang, read as these engines read them; `utils/check_exports.py` runs the engines' own code."""

import json
import re
from dataclasses import replace

import pytest
import torch
from torch import nn


pytest.importorskip("transformers")
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.exports.export import (  # noqa: E402
    TOOLS,  # noqa: E402
    export,
    is_rms_norm,  # noqa: E402
    misread,
)
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.tiny.build import target_of  # noqa: E402


ENGINES = {"vllm": "colwise_gather_output", "sglang": "colwise_rep"}


@pytest.fixture(scope="module")
def deepseek():
    return derive_model(target_of("deepseek_v3"))


@pytest.mark.parametrize("tool", ENGINES)
def test_each_engine_gets_its_own_names(tool, deepseek):
    """Tables, experts and rules for gradients need no entry."""
    found = export(deepseek, TOOLS[tool])
    entries = json.loads(found.text)["base_model_tp_plan"]
    assert entries["layers.*.self_attn.q_a_proj"] == ENGINES[tool]
    assert set(entries.values()) == {"colwise", "rowwise", ENGINES[tool]}
    assert not any("experts." in key and "shared" not in key or "embed" in key for key in entries)
    assert {rule.pattern for rule in found.plan.rules} > entries.keys()
    assert found.memory.exported == found.memory.full and not found.proven


def test_transformers_takes_the_text_as_a_field_of_the_configuration(deepseek):
    """The engines put it there, and read the plan of the model that transformers builds."""
    found = export(deepseek, TOOLS["vllm"])
    model = deepseek.small.model
    config = type(model.config)(**model.config.to_dict())
    config.update(json.loads(found.text))
    with torch.device("meta"):
        built = type(model)(config)
    entries = json.loads(found.text)["base_model_tp_plan"]
    assert {key: built.tp_plan[key] for key in entries} == entries


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("phi3", "layers.0.self_attn: its attention is not sharded by heads"),
        ("deepseek_v4", "layers.1.self_attn.compressor: its attention is not sharded by heads"),
        ("gpt_neo", "transformers does not let an engine replace this model's attention"),
    ],
)
def test_what_an_engine_could_not_run_is_refused(model, said):
    """An engine gives each device heads / devices: whole attention would mix the heads up."""
    with pytest.raises(PlanError, match=f"{model}: sglang cannot run it: {re.escape(said)}"):
        export(derive_model(target_of(model)), TOOLS["sglang"])


def test_sinks_of_heads_are_dealt_out_by_vllm_alone():
    """vLLM shards the parameter that attention hands over as `s_aux`; SGLang would leave it out."""
    granite = derive_model(target_of("granite_swa"))
    found = export(granite, TOOLS["vllm"])
    assert "layers.*.self_attn.sinks shard dim=0" in str(found.plan) and not found.lost
    assert not any("sinks" in key for key in json.loads(found.text)["base_model_tp_plan"])
    with pytest.raises(PlanError, match="sglang cannot run it"):
        export(granite, TOOLS["sglang"])
    plan = Plan.parse(
        str(granite.plan).replace("rule layers.*.self_attn.sinks shard dim=0", "rule norm.weight shard dim=0")
    )
    assert [one.part for one in TOOLS["vllm"].inexpressible(plan, granite.small.model)] == ["norm.weight"]


@pytest.mark.parametrize("model", ["olmo3", "bitnet"])
def test_norms_over_a_projection_are_gathered_by_vllm_alone(model):
    """vLLM gathers the shares that such a norm takes, so attention is sharded by heads; SGLang would norm a share."""
    derived = derive_model(target_of(model))
    assert "self_attn.q_proj colwise_gather_output" in str(derived.plan)
    found = export(derived, TOOLS["vllm"])
    entries = json.loads(found.text)["base_model_tp_plan"]
    assert {entries[f"layers.*.self_attn.{name}_proj"] for name in "qkv"} == {"colwise"}
    assert entries["layers.*.self_attn.o_proj"] == "rowwise" and not found.lost
    assert not any("norm" in key for key in entries) and "norm" not in str(found.plan).partition("whole")[0]
    assert found.memory.exported == found.memory.full
    with pytest.raises(PlanError, match="sglang cannot run it: .* not sharded by heads"):
        export(derived, TOOLS["sglang"])


def test_heads_that_differ_by_layer_are_sized_by_vllm_alone():
    """vLLM reads the heads of each layer of such a configuration; SGLang gives all layers those of the first."""
    gemma = derive_model(target_of("gemma4_text"))
    assert gemma.small.model.config.is_heterogeneous
    assert json.loads(export(gemma, TOOLS["vllm"]).text)["base_model_tp_plan"]
    with pytest.raises(PlanError, match="key heads of different number or size"):
        export(gemma, TOOLS["sglang"])


class ZeroCentred(nn.RMSNorm):
    def forward(self, entries):
        return nn.functional.rms_norm(entries, self.normalized_shape, 1 + self.weight, 1e-6)


class Called(nn.RMSNorm):
    """Not gathered by an engine, and it cannot be called as a norm is: nemotron_h has such a norm beside a projection."""

    def forward(self, entries, gate=None):
        return super().forward(entries) if gate is None else super().forward(entries) * gate


def test_norms_are_known_by_their_numbers():
    kinds = (nn.RMSNorm(6), ZeroCentred(6), nn.LayerNorm(6), Called(6), nn.Linear(6, 6), nn.Tanh())
    for kind in kinds:
        for parameter in kind.parameters():
            nn.init.uniform_(parameter, 0.5, 2)
    assert [is_rms_norm(kind) for kind in kinds] == [True, True, False, False, False, False]


class Alike(nn.Module):
    """Layers whose names begin alike, and a deeper layer with the same last name."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleDict({"q": nn.Linear(4, 4), "q_new": nn.Linear(4, 4)})])
        self.layers[0]["deep"] = nn.ModuleDict({"q": nn.Linear(4, 4)})
        self.own = nn.Linear(4, 4)


@pytest.mark.parametrize("tool", ENGINES)
def test_patterns_that_would_match_more_are_written_exactly(tool):
    plan = Plan.parse("plan x\nrule layers.*.q colwise\nrule own rowwise\n")
    entries = json.loads(TOOLS[tool].text(plan, Alike()))["base_model_tp_plan"]
    assert list(entries) == [r"layers\.\d+\.q$", "own$"]
    paths = [f"model.{path}" for path, module in Alike().named_modules() if isinstance(module, nn.Linear)]
    assert [path for path in paths if re.match("model." + next(iter(entries)), path)] == ["model.layers.0.q"]
    assert misread(TOOLS[tool], plan, Alike()) == ""


def test_a_text_that_is_read_otherwise_is_found():
    plan = Plan.parse("plan x\nrule layers.*.q colwise\nrule own rowwise\n")
    wide = '{"base_model_tp_plan": {"layers.*.q": "colwise", "own": "rowwise"}}'
    tool = replace(TOOLS["vllm"], text=lambda plan, model: wide)
    assert misread(tool, plan, Alike()) == "layers.0.deep.q: read as colwise, not whole"
    unknown = replace(TOOLS["sglang"], text=lambda plan, model: wide.replace("colwise", "packed_colwise"))
    assert misread(unknown, plan, Alike()) == "layers.0.q: read as whole, not colwise"


def test_packed_layers_are_never_handed_over():
    """SGLang reads `packed_colwise` as `colwise`, which would cut through the packed blocks."""
    plan = Plan.parse("plan x\nrule layers.*.q packed_colwise parts=1:1\nrule own colwise\n")
    for tool in ENGINES:
        assert [one.part for one in TOOLS[tool].inexpressible(plan, Alike())] == ["layers.*.q"]
