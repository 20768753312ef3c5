"""The form of torchtitan's transformers backend; `utils/train_exports.py` trains with torchtitan itself."""

import sys
import types

import pytest
from torch import nn


pytest.importorskip("transformers")
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.exports.export import TOOLS, export  # noqa: E402
from modular_converter.parallel.exports.torchtitan import entries  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.tiny.build import target_of  # noqa: E402


@pytest.fixture
def written(monkeypatch):
    """Runs a text with torchtitan's names, whose layouts are the text in the file; gives its names."""
    axes = types.SimpleNamespace(DP="dp", CP="cp", TP="tp")
    for name, values in {
        "spmd_types": {**{name: name for name in "IPR"}, "S": lambda dim: f"S({dim})"},
        "torchtitan": {},
        "torchtitan.distributed": {},
        "torchtitan.distributed.parallel_dims": {"MeshAxisName": axes, "SpmdLayout": lambda axes: axes["tp"]},
        "torchtitan.protocols": {},
        "torchtitan.protocols.sharding": {"ShardingConfig": types.SimpleNamespace},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)

    def run(text):
        found = {}
        exec(text, found)
        return found

    return run


def whole(base):
    """As torchtitan holds a model with its head."""
    inner = nn.Module()
    inner.model, inner.lm_head = base, nn.Linear(4, 8)
    return types.SimpleNamespace(model=inner)


def test_every_module_with_states_gets_its_layouts(written):
    derived = derive_model(target_of("qwen3"))
    found = export(derived, TOOLS["torchtitan"])
    assert not found.lost and found.memory.exported == found.memory.full
    model = whole(derived.small.model)
    model.model.model.embed_tokens.padding_idx = None
    written(found.text)["set_sharding_configs"](model, enable_sp=True)
    configs = {
        path: module._sharding_config
        for path, module in model.model.named_modules()
        if vars(module).get("_sharding_config")
    }
    stateful = {name.rpartition(".")[0] for name in model.model.state_dict()} | {"model.rotary_emb"}
    assert configs.keys() == stateful
    attention = "model.layers.1.self_attn"
    assert configs[f"{attention}.q_proj"].state_shardings == {"weight": "S(0)"}
    assert configs[f"{attention}.q_proj"].in_src_shardings == {"input": "I"}
    assert configs[f"{attention}.q_proj"].in_dst_shardings == {"input": "R"}
    assert configs[f"{attention}.q_proj"].out_dst_shardings is None
    assert configs[f"{attention}.o_proj"].state_shardings == {"weight": "S(1)"}
    assert configs[f"{attention}.o_proj"].in_src_shardings is None
    assert (configs[f"{attention}.o_proj"].out_src_shardings, configs[f"{attention}.o_proj"].out_dst_shardings) == (
        "P",
        "I",
    )
    assert configs[f"{attention}.q_norm"].state_shardings == {"weight": "R"}
    assert configs["model.norm"].state_shardings == {"weight": "I"}
    assert configs["model.rotary_emb"].state_shardings == {"inv_freq": "I", "original_inv_freq": "I"}
    assert configs["lm_head"].state_shardings == {"weight": "S(0)", "bias": "S(0)"}


def test_an_index_of_padding_is_refused(written):
    """torchtitan takes it for a row of each device's share, whose gradient would be missing."""
    derived = derive_model(target_of("qwen3"))
    model = whole(derived.small.model)
    model.model.model.embed_tokens.padding_idx = 1
    code = written(export(derived, TOOLS["torchtitan"]).text)
    with pytest.raises(ValueError, match=r"model\.embed_tokens\.padding_idx would be taken for a row"):
        code["set_sharding_configs"](model)


def test_a_model_with_its_head_has_the_same_entries():
    """The loss takes shares of the vocabulary, so the head is not gathered."""
    base, causal = (derive_model(target_of("llama", head)) for head in ("base", "causal"))
    assert "rule lm_head colwise_gather_output" in str(causal.plan)
    assert entries(causal.plan, causal.small.model) == entries(base.plan, base.small.model)


def test_a_bias_of_a_row_wise_layer_is_not_summed():
    """Each device would add it: such layers are gathered."""
    found = export(derive_model(target_of("phi")), TOOLS["torchtitan"])
    given = entries(found.plan, derive_model(target_of("phi")).small.model)
    assert given["model.layers.*.self_attn.dense"]["output"] == "S(-1), I"
    assert found.collectives[0] > found.collectives[1]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("mixtral", "it puts layers of its own in the place of layers.0.mlp.experts"),
        ("gpt2", "it trains decoders of model.embed_tokens, model.layers, model.norm and model.rotary_emb"),
    ],
)
def test_models_of_other_parts_are_refused(model, said):
    with pytest.raises(PlanError, match=f"{model}: torchtitan cannot run it: {said}"):
        export(derive_model(target_of(model)), TOOLS["torchtitan"])


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.table = nn.Embedding(8, 4)
        self.inner = nn.ModuleDict({"up": nn.Linear(4, 4)})
        self.scale = nn.Parameter(self.up.weight.new_ones(4, 8))
        self.inner.forward = lambda hidden, mask=None: hidden


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rule down rowwise", "down: its bias would be added once on each device"),
        ("rule up colwise units=2", "up: colwise units=2"),
        ("rule scale colwise", "scale: no layer of the model has this path, and colwise is for layers"),
        ("rule table colwise", "table: table is a Embedding, no Linear"),
        ("rule up mla_kv_a_proj parts=2:1", "up: mla_kv_a_proj parts=2:1"),
        ("attribute inner:heads", "inner:heads: an integer that must shrink"),
    ],
)
def test_what_torchtitan_has_no_layout_for_is_named(line, said):
    assert [str(one) for one in TOOLS["torchtitan"].inexpressible(Plan.parse(f"plan x\n{line}\n"), Odd())] == [said]


def test_states_and_edges_of_one_module_are_written_together():
    plan = Plan.parse("plan x\nrule inner enter_input\nrule scale shard dim=1\nrule inner.up enter_output\n")
    given = entries(plan, Odd())
    assert given["model.inner"] == {"hidden": "I, R", "mask": "I, R"}
    assert given["model"] == {"scale": "S(1)"} and given["model.inner.up"] == {"output": "I, R"}
