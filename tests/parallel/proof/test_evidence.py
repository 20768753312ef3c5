"""The scope of a proof lists the parts that ran and those that did not; none is left out."""

import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner
from torch import nn


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.judge import Evidence  # noqa: E402
from modular_converter.parallel.proof.numbers import watched  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads, check_on_threads  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.proof.subject import subject_of  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


PAIR = Plan.parse("plan x\nrule up colwise\nrule down rowwise\n")
FORWARD = {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}


class Pair(nn.Module):
    """A column and a row layer, with a layer that is never called, and a branch on what the first gives."""

    def __init__(self, branches=False):
        super().__init__()
        self.up, self.down, self.idle = nn.Linear(8, 16), nn.Linear(16, 8), nn.Sequential(nn.Linear(8, 8))
        self.branches = branches

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        if x.sum() > 1e9 or self.branches and (hidden > 1e9).any():
            hidden = hidden * 0
        return self.down(hidden)


@pytest.fixture(scope="module")
def llama():
    return derive_model(
        target_of("transformers.models.llama.modeling_llama.LlamaForCausalLM"), {"num_hidden_layers": 1}
    )


def test_a_verdict_lists_what_ran(llama):
    found = llama.verdict.evidence
    assert (found.ranks, found.places, found.draws) == ((2,), ("threads",), 2)
    assert found.inputs == ("input_ids 2x12", "input_ids 2x31", "attention_mask 2x31")
    assert set(found.situations) == {"padding", "another length", "train mode", "decoding with a cache"}
    assert {"LlamaAttention", "LlamaMLP", "LlamaRMSNorm"} <= set(found.kinds)
    assert {"mm", "embedding", "silu"} <= set(found.operators)
    assert "num_hidden_layers=1" in found.sizes and "hidden_size=64" in found.sizes
    assert found.forms == ("with gradients",) and "float64" in found.types
    assert found.not_covered == ("the form for inference", "16-bit types")
    assert found.lines()[-1] == "not covered: the form for inference; 16-bit types"
    assert not any(line.startswith("not covered") for line in found.lines(tried_later=True))


def test_a_module_that_no_run_calls_and_a_branch_on_data_are_named():
    found = check_model_on_threads(Pair(branches=True), PAIR, FORWARD, 2).evidence
    assert found.idle == ("idle",) and "idle: no run called them" in found.not_covered
    assert "other outcomes of values that are read in the model" in found.not_covered
    assert check_model_on_threads(Pair(), PAIR, FORWARD, 2).evidence.gaps == ()


def test_a_weight_that_no_operator_takes_is_named_in_a_module_that_has_others():
    class Partly(Pair):
        def forward(self, x):
            return self.down(torch.nn.functional.linear(x, self.up.weight))

    assert watched(Partly(), FORWARD).idle == ("up.bias", "idle")


def test_only_values_that_depend_on_weights_are_branches_on_data():
    assert not watched(Pair(), FORWARD).reads and list(watched(Pair(branches=True), FORWARD).reads) == [""]


def test_decoding_that_fails_is_said(monkeypatch, llama):
    model, inputs = llama.small.model, llama.small.inputs
    monkeypatch.setattr(type(model), "generate", lambda *a, **k: 1 / 0, raising=False)
    found = check_on_threads(subject_of(model, inputs), llama.plan, 2)
    assert found.passed
    assert "decoding: the model's own generate fails (ZeroDivisionError: division by zero)" in found.evidence.gaps
    assert "decoding with a cache" in found.evidence.not_covered


def test_a_missing_second_draw_is_said(monkeypatch):
    from modular_converter.parallel.proof import subject

    monkeypatch.setattr(subject, "_with_other_weights", lambda model, inputs: None)
    found = check_model_on_threads(Pair(), PAIR, FORWARD, 2).evidence
    assert found.draws == 1 and found.gaps == ("a second draw of weights: with it the model's outputs are not finite",)


def test_two_proofs_cover_what_either_does():
    both = {"possible": ("padding", "train mode"), "forms": ("with gradients",), "types": ("bfloat16",)}
    first = Evidence(ranks=(2,), situations=("padding",), unproven=("a", "b"), idle=("c",), draws=1, **both)
    second = Evidence(ranks=(4,), situations=("train mode",), unproven=("b",), draws=2, gaps=("d",), **both)
    found = first.also(second)
    assert (found.ranks, found.draws, found.unproven, found.idle) == ((2, 4), 2, ("b",), ())
    assert found.not_covered == ("d", "gradients of b", "the form for inference")


def test_the_lines_of_a_scope():
    found = Evidence(
        (2,),
        ("threads",),
        ("n=2",),
        ("x 3x8",),
        draws=1,
        forms=("with gradients",),
        operators=("mm", "add"),
        gaps=("d",),
    )
    first, last = "run: 1 draw of weights; x 3x8; eval mode; with gradients", "not covered: d; the form for inference"
    assert found.lines() == [first, last] and found.lines(tried_later=True) == [first, "not covered: d"]
    every = ["ranks: 2", "places: threads", "sizes: n=2", "inputs: x 3x8", "operators: mm, add"]
    assert found.lines(verbose=True) == [first, *every, last] and Evidence().lines() == []


def test_many_names_are_counted():
    assert Evidence(unproven=("a", "b", "c", "d", "e")).not_covered == ("gradients of a, b, c and 2 more",)


def test_an_evidence_is_frozen_and_goes_to_json(llama):
    with pytest.raises(dataclasses.FrozenInstanceError):
        llama.verdict.evidence.draws = 3
    found = json.loads(json.dumps(llama.verdict.to_json()))
    assert found["verified"] and found["evidence"]["not_covered"] == ["the form for inference", "16-bit types"]


@pytest.mark.slow
def test_the_command_prints_the_scope_and_the_whole_of_it_on_demand(one_pool):
    short = CliRunner().invoke(main, ["verify", "gpt2"]).stdout
    assert "  run: 2 draws of weights; input_ids 2x12" in short and "  not covered: " in short
    assert "operators: " not in short
    whole = CliRunner().invoke(main, ["verify", "gpt2", "--verbose"]).stdout
    assert "  places: gloo processes" in whole and "  kinds: " in whole and "addmm" in whole
    line = json.loads(CliRunner().invoke(main, ["verify", "gpt2", "--json"]).stdout)
    assert (
        line["verified"]
        and line["evidence"]["places"] == ["gloo processes"]
        and "GPT2Block" in line["evidence"]["kinds"]
    )


def test_deriving_says_the_scope_beside_the_plan():
    found = CliRunner().invoke(main, ["derive", "gpt2"])
    Plan.parse(found.stdout)
    assert "modular-plan: gpt2: run: 2 draws of weights" in found.stderr


def test_experts_without_a_token_are_split_as_those_with_one():
    found = derive_model(target_of("switch_transformers"))
    rules = {rule.pattern: rule.style for rule in found.plan.rules}
    for number in range(8):
        for stack in ("encoder", "decoder"):
            start = f"{stack}.block.*.layer.*.mlp.experts.expert_{number}"
            assert (rules[f"{start}.wi"], rules[f"{start}.wo"]) == ("colwise", "rowwise")
    assert found.verdict.passed and not found.retreat
    assert any(".experts.expert_" in path for path in found.verdict.evidence.idle)
    small = build(target_of("switch_transformers"))
    assert check_model_on_threads(small.model, found.plan, small.inputs, 4).passed
