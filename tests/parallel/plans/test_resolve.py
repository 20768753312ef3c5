"""A plan for one model: the parts that its rules name, and errors for rules that do not fit."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import check_whole, fitting, names_of_tied, resolve
from modular_converter.parallel.styles import style_of
from modular_converter.parallel.styles.layout import GATHERED, ROWWISE, SHARE, VOCABULARY


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
        self.head.weight = self.words.weight
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(8, 16)])
        self.norm, self.table = nn.LayerNorm(8), nn.Parameter(torch.zeros(4, 6, 8))
        self.heads = 4


def resolved(*rules):
    return resolve(Plan.parse("plan x\n" + "".join(f"{rule}\n" for rule in rules)), Model())


@pytest.mark.parametrize(
    "rule, dims, roles",
    [
        ("rule layers.* colwise", {"weight": 0, "bias": 0}, {"weight": {"colwise"}, "bias": {"shard"}}),
        ("rule layers.* rowwise", {"weight": 1}, {"weight": {"rowwise"}}),
        ("rule layers.*.weight rowwise", {"weight": 1}, {"weight": {"rowwise"}}),
        ("rule layers.*.weight shard dim=0", {"weight": 0}, {"weight": {"shard"}}),
        ("rule layers.*.bias shard", {"bias": 0}, {"bias": {"shard"}}),
        (
            "rule layers.* replicated_with_grad_allreduce",
            {"weight": -1, "bias": -1},
            dict.fromkeys(("weight", "bias"), {"replicated_with_grad_allreduce"}),
        ),
    ],
)
def test_a_rule_stands_for_the_weights_of_its_layers(rule, dims, roles):
    pieces = resolved(rule).pieces
    assert {name: piece.dim for name, piece in pieces.items()} == {
        f"layers.{i}.{leaf}": dim for i in range(2) for leaf, dim in dims.items()
    }
    for name, piece in pieces.items():
        assert set(map(style_of, piece.roles)) == roles[name.rpartition(".")[2]]
        assert piece.length == (0 if piece.dim < 0 else Model().get_parameter(name).shape[piece.dim])
        assert piece.rule == rule.split()[1]


def test_tied_weights_have_one_piece_with_both_roles():
    pieces = resolved("rule words embedding_rowwise", "rule head colwise_gather_output").pieces
    assert pieces["words.weight"] == pieces["head.weight"] and pieces["head.weight"].rule == "words, head"
    assert pieces["head.weight"].roles == {VOCABULARY, GATHERED}
    alone = resolved("rule head colwise_gather_output").pieces
    assert alone["words.weight"] == alone["head.weight"]
    assert (
        names_of_tied(Model())["head.weight"] == "words.weight" and names_of_tied(Model())["norm.bias"] == "norm.bias"
    )


def test_parts_and_units_are_measured_in_the_model():
    pieces = resolved("rule layers.0 packed_colwise parts=heads*2:rest units=heads").pieces
    for name in ("layers.0.weight", "layers.0.bias"):
        assert (pieces[name].parts, pieces[name].units.number, pieces[name].length) == ((1, 1), 4, 16)
    assert resolved("attribute layers:heads", "attribute :heads").attributes == (("layers", "heads"), ("", "heads"))


@pytest.mark.parametrize(
    "rules, said",
    [
        (["rule lay colwise"], "lay: matches no module and no parameter of the model"),
        (["attribute lay:heads"], "lay:heads: matches no module of the model"),
        (["rule norm.weight shard dim=1"], "norm.weight: dimension 1 of a parameter with 1"),
        (["rule layers colwise"], "layers: style colwise wants a module with weight and bias, not none"),
        (["rule words embedding_rowwise", "rule head rowwise"], "split it in different ways"),
        (["rule layers.0 colwise", "rule layers.0.weight rowwise"], "layers.0 and layers.0.weight split it in different ways"),
        (["rule layers.0 colwise units=2", "rule layers.*.weight colwise"], "split it in different ways"),
        (["rule norm mla_kv_a_proj parts=8"], "norm: style mla_kv_a_proj wants a layer with a weight, and the parts"),
        (["rule layers mla_kv_a_proj parts=4:4"], "layers: style mla_kv_a_proj wants a layer with a weight"),
        (["rule layers.0 colwise units=heads-4"], "layers.0.weight: heads-4 = 0 is not a number of units"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(rules, said):
    with pytest.raises(ApplyError, match=said.replace("*", r"\*")):
        resolved(*rules)


@pytest.mark.parametrize("made", [lambda one: prune.identity(one, "weight"), weight_norm])
def test_a_weight_that_is_computed_from_others_is_named_with_the_cure(made):
    model = Model()
    made(model.layers[0])
    with pytest.raises(ApplyError, match=r"layers\.0: .* computed from other parameters.*prune\.remove"):
        resolve(Plan.parse("plan x\nrule layers.0 colwise\n"), model)


def test_rules_of_modules_cut_no_weights():
    """They change what goes into a module or comes out of it; one says the parts of what comes out."""
    found = resolved(
        "rule layers.* enter_output", "rule norm all_reduce", "rule layers.0 mla_kv_a_proj parts=heads*3:rest"
    )
    assert found.pieces == {} and found.tails == {"layers.0": (3, 1)}
    assert [(path, style_of(layout)) for path, layout in found.hooks] == [
        ("layers.0", "enter_output"), ("layers.1", "enter_output"), ("norm", "all_reduce"), ("layers.0", "mla_kv_a_proj"),
    ]  # fmt: skip
    with pytest.raises(ApplyError, match="gone: matches no module"):
        resolved("rule gone enter_output")


def test_what_is_said_to_be_whole_must_be_there():
    model = Model()
    check_whole(Plan.parse("plan x\nwhole layers.*.bias so\nwhole norm so\n"), model)
    with pytest.raises(ApplyError, match="whole gone: matches no module and no parameter"):
        check_whole(Plan.parse("plan x\nwhole norm so\nwhole gone so\n"), model)


def test_a_plan_is_fitted_to_a_model_that_lacks_parts():
    plan = Plan.parse("plan x\nrule gone colwise\nrule layers.* colwise\nattribute gone:n\nattribute :heads\n")
    found = fitting(plan, Model())
    assert [rule.pattern for rule in found.rules] == ["layers.*"] and found.attributes == (":heads",)


def test_the_number_of_stacked_experts_shrinks_with_them():
    model = Model()
    model.num_experts = 4
    plan = Plan.parse("plan x\nrule table grouped_gemm\nattribute :num_experts\n")
    assert resolve(plan, model).attributes == (("", "num_experts"),)
    assert resolve(Plan.parse("plan x\nrule table grouped_gemm\n"), model).attributes == (("", "num_experts"),)
    model.num_experts = 6
    assert resolve(Plan.parse("plan x\nrule table grouped_gemm\n"), model).attributes == ()
    assert resolve(Plan.parse("plan x\nrule table shard\n"), model).attributes == ()


def test_a_module_with_other_parameters_has_no_usual_dimension():
    model = Model()
    model.norm.extra = nn.Parameter(torch.zeros(8))
    model.words.extra = nn.Parameter(torch.zeros(8))
    with pytest.raises(ApplyError, match=r"norm: style colwise wants .*, not \['bias', 'extra', 'weight'\]"):
        resolve(Plan.parse("plan x\nrule norm colwise\n"), model)
    found = resolve(Plan.parse("plan x\nrule words embedding_rowwise\n"), model).pieces
    assert set(found) == {"words.weight", "head.weight"}, "rows beside a table stay whole"
    assert set(resolve(Plan.parse("plan x\nrule norm replicated_with_grad_allreduce\n"), model).pieces) == {
        "norm.weight", "norm.bias", "norm.extra",
    }  # fmt: skip


def test_a_weight_of_a_module_that_acts_for_it_is_a_plain_share():
    plan = Plan.parse(
        "plan x\nrule layers.0.weight rowwise\nrule layers.1.weight rowwise\nrule layers.0 moe_tp_experts\n"
    )
    pieces = resolve(plan, Model()).pieces
    assert pieces["layers.0.weight"].roles == {SHARE} and pieces["layers.1.weight"].roles == {ROWWISE}
    assert pieces["layers.0.weight"].dim == pieces["layers.1.weight"].dim == 1


def test_a_module_put_around_a_layer_is_told_with_a_cure():
    class Lora(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.low = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    model = torch.nn.Module()
    model.layer = Lora()
    with pytest.raises(
        ApplyError, match=r"layer: style colwise .*: the plan knows no parts of a Lora: .* add LoRA by peft"
    ):
        resolve(Plan.parse("plan own\nrule layer colwise\n"), model)


def test_a_layer_with_parts_that_no_plan_knows_is_named_with_the_cure():
    model = Model()
    model.layers[0].low_rank = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(
        ApplyError, match=r"not \['bias', 'low_rank', 'weight'\]: the plan knows no parts of a Linear: .*by peft"
    ):
        resolve(Plan.parse("plan x\nrule layers.0 colwise\n"), model)
