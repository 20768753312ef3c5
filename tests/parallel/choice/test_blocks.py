"""Blocks of a width: their number is the configuration's in hand, and no cut goes through a head of a block."""

import copy

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_on_threads  # noqa: E402
from modular_converter.parallel.proof.subject import subject_of  # noqa: E402
from tests.parallel import blocks_by_count  # noqa: E402


IDS = torch.arange(5, 29).view(2, 12)


def model_of(name, **settings):
    torch.manual_seed(1)
    kind = getattr(blocks_by_count, name)
    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "vocab_size": 96}
    return kind(kind.config_class(**sizes | settings)).eval()


def holds(model, plan, ranks):
    return check_on_threads(subject_of(copy.deepcopy(model), {"input_ids": IDS}, second=False), plan, ranks).passed


@pytest.mark.parametrize("blocks", [2, 3, 6])
def test_as_many_blocks_as_the_configuration_in_hand_has(blocks):
    model = model_of("Turned", n_parts=blocks)
    plan, origin, _ = select_plan(model, None, 2)
    assert plan.rules and holds(model, plan, 2)
    assert blocks == 2 or "layers.0 (has operation" in origin or "of the model itself" in origin


def test_no_cut_goes_through_a_head_of_a_block():
    model = model_of("Halved", intermediate_size=48)
    plan, *_ = select_plan(model, None, 2)
    assert any(".up" in rule.pattern for rule in plan.rules) and holds(model, plan, 2)
    even = "plan x\nrule layers.*.up packed_colwise parts=1:1\nrule layers.*.down packed_rowwise parts=1:1\n"
    assert not holds(model, Plan.parse(even), 2)


def test_a_buffer_that_the_forward_writes_is_the_same_on_each_rank():
    model = model_of("Averaged").train()
    plan = Plan.parse("plan x\nrule layers.*.up colwise\nrule layers.*.down rowwise\n")
    assert holds(model, plan, 2) and holds(model, plan, 3)


def test_axes_whose_entries_are_tied_one_to_the_next_are_no_crash():
    plan, *_ = select_plan(model_of("Differed", intermediate_size=1024), None, 2)
    assert not any(".up" in rule.pattern and rule.style == "colwise" for rule in plan.rules)
