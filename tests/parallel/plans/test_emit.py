"""Plans in other vocabularies, run by those who own them."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.emit import refused_by_loader, to_library, to_torch, torch_text
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.solve.derive import from_library
from tests.parallel.launch import launch


def test_torch_runs_a_derived_plan():
    script = Path(__file__).with_name("torch_styles_script.py")
    done = launch(2, script)
    assert done.code == 0, done.errors[-3000:]
    assert done.output.strip() == "equal 4"


class Odd(nn.Module):
    """Layers and parameters that torch's styles can and cannot say."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(2)])
        self.other = nn.ModuleDict({"0": nn.Linear(4, 4), "last": nn.Linear(4, 4)})
        self.words, self.head = nn.Embedding(4, 4), nn.Linear(4, 4)
        self.head.weight = self.words.weight
        self.table = nn.Parameter(torch.zeros(4, 4))


def test_the_text_for_torch_is_what_it_runs():
    plan = Plan.parse("plan x\nrule layers.0 colwise\nrule layers.1 rowwise\nrule other.0 colwise_gather_output\n")
    pasted = {}
    exec(torch_text(plan, Odd()), pasted)
    made = to_torch(plan, Odd())
    described = [{name: str(vars(style)) for name, style in one.items()} for one in (pasted["parallelize_plan"], made)]
    assert described[0] == described[1] and list(made) == ["layers.0", "layers.1", "other.0"]
    assert torch_text(Plan("x"), Odd()) == "parallelize_plan = {\n}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rule layers.0 packed_colwise parts=1:1", "layers.0: packed_colwise parts=1:1"),
        ("rule layers.0 colwise dim=1", "layers.0: colwise dim=1"),
        ("rule table rowwise", "table: no layer of the model has this path, and rowwise is for layers"),
        ("rule layers.*.weight colwise", r"layers.\*.weight: no layer of the model has this path"),
        ("rule words colwise", "words: words is a Embedding, no Linear"),
        ("rule words embedding_rowwise", "words: words.weight is head.weight as well"),
        ("rule other.* colwise", r"other.\*: `\*` matches any name there, .* also other.last"),
        ("attribute other:heads", "other:heads: an integer that must shrink"),
    ],
)
def test_what_torch_has_no_style_for_is_named(line, said):
    with pytest.raises(PlanFormatError, match=f"x: torch has no style for {said}"):
        to_torch(Plan.parse(f"plan x\nrule layers.0 colwise\n{line}\n"), Odd())


def test_what_transformers_loader_cuts_without_summing_is_named():
    plan = from_library(
        "x", {"layers.*": "colwise", "table": "rowwise", "words.weight": "replicated_with_grad_allreduce"}
    )
    assert [str(one) for one in refused_by_loader(plan, Odd())] == [
        "table: rowwise of a parameter: transformers' loader cuts it, but sums nothing"
    ]
    model = nn.ModuleDict({"experts": Odd()})
    experts = from_library("x", {"experts.table": "rowwise", "experts": "moe_tp_experts"})
    assert refused_by_loader(experts, model) == []


def test_layers_that_transformers_loader_does_not_cut_are_named():
    model = nn.ModuleDict({"up": Conv1D(8, 4), "words": nn.Embedding(8, 4)})
    plan = from_library("x", {"up": "colwise", "words": "embedding_rowwise"})
    assert [str(one) for one in refused_by_loader(plan, model)] == [
        "up: up is a Conv1D, and transformers' loader cuts linear layers"
    ]


def test_the_library_vocabulary_comes_and_goes():
    rules = {"layers.*.q": "colwise", "layers.*.gate_up": "packed_colwise", "layers.*.o": "rowwise"}
    assert to_library(from_library("x", rules)) == rules
    silent = {"layers.*.norm": "replicate", "layers.*.attention": "local_params"}
    assert from_library("x", {**rules, **silent}) == from_library("x", rules)
    with pytest.raises(PlanFormatError, match="the cut of its output is unknown"):
        from_library("x", {"layers.*.kv": "mla_kv_a_proj"})
    with pytest.raises(PlanFormatError, match="unknown style 'sideways'"):
        from_library("x", {"a": "sideways"})


def test_a_layer_without_a_rule_gets_none_through_its_neighbours():
    """The library takes each number in a name for a star."""
    alone = Plan.parse("plan x\nrule layers.1 colwise\n")
    assert to_library(alone) == {"layers.*": "colwise"}
    with pytest.raises(
        PlanFormatError, match=r"layers\.\*: layers\.0 has no rule, and that vocabulary cannot name one member"
    ):
        to_library(alone, Odd())
    both = Plan.parse("plan x\nrule layers.1 colwise\nrule layers.0 colwise\nrule other.0 rowwise\n")
    assert to_library(both, Odd()) == {"layers.*": "colwise", "other.*": "rowwise"}
    with pytest.raises(PlanFormatError, match=r"layers\.\*: its members need different styles"):
        to_library(Plan.parse("plan x\nrule layers.1 colwise\nrule layers.0 rowwise\n"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rule a enter_output", "a: style enter_output is ours"),
        ("rule a colwise dim=0", "a: dimension 0"),
        ("rule a packed_colwise parts=1:2", "a: packed parts 1:2"),
        ("rule a packed_colwise parts=heads:rest", "a: packed parts heads:rest"),
        ("rule a colwise units=6", "a: units 6"),
        ("attribute a:heads", "a:heads: an integer that must shrink"),
    ],
)
def test_what_the_library_cannot_say_is_named(line, said):
    with pytest.raises(PlanFormatError, match=f"^x: not in transformers' vocabulary: {said}$"):
        to_library(Plan.parse(f"plan x\nrule b packed_colwise parts=1:1\nrule c mla_kv_a_proj parts=2:1\n{line}\n"))
