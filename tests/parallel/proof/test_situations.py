"""The second proof runs with padding, more tokens and in train mode: plans that are wrong only there are refused."""

from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import nn


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_on_threads  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.proof.subject import (  # noqa: E402
    other_situation,
    possible,
    subject_of,  # noqa: E402
)
from modular_converter.parallel.tiny.build import Target, build, target_of  # noqa: E402
from tests.parallel import deceptive  # noqa: E402


RIGHT_WHEN_PLAIN = Plan.parse(
    "plan x\nrule embed embedding_rowwise\nrule layers.*.up colwise\nrule layers.*.down rowwise\n"
)
KINDS = {
    deceptive.PaddedModel: "padding",
    deceptive.LongModel: "another length",
    deceptive.TrainedModel: "train mode",
}


def target(kind):
    return Target(
        kind.__name__, *(f"{one.__module__}.{one.__qualname__}" for one in (kind, deceptive.DeceptiveConfig))
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_plan_that_is_wrong_in_a_situation_is_refused_there(kind):
    small = build(target(kind))
    subject = subject_of(small.model, small.inputs)
    verdict = check_on_threads(subject, RIGHT_WHEN_PLAIN, 2)
    assert not verdict.passed and "with other weights, " in verdict.reason and KINDS[kind] in verdict.reason


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_derived_plan_holds_there(kind):
    found = derive_model(target(kind))
    assert found.verdict.passed and found.retreat and found.plan.rules
    assert not any(rule.pattern.startswith("layers.*.up") and rule.style == "colwise" for rule in found.plan.rules)


def test_a_model_runs_in_all_that_it_can():
    small = build(target_of("transformers.models.llama.modeling_llama.LlamaForCausalLM"))
    assert possible(small.model, small.inputs) == ("padding", "another length", "train mode", "decoding with a cache")
    found = other_situation(small.model, small.inputs)
    assert found.special == ("padding", "another length", "train mode") and found.model.training
    assert not small.model.training and "attention_mask" not in small.inputs
    assert found.inputs["attention_mask"][0, -3:].tolist() == [0, 0, 0]


class Dropping(nn.Module):
    """Random numbers in train mode that no rate of dropout turns off, and dropout that one does."""

    def __init__(self, noise):
        super().__init__()
        self.up, self.drop, self.noise = nn.Linear(8, 8), nn.Dropout(0.5), noise

    def forward(self, x):
        hidden = F.dropout(self.drop(self.up(x)), 0.0, self.training)
        return hidden + torch.rand(hidden.shape) if self.noise and self.training else hidden


def test_dropout_is_turned_off_and_a_model_that_still_draws_numbers_stays_in_eval_mode():
    inputs = {"x": torch.ones(2, 8)}
    assert other_situation(Dropping(noise=False), inputs).special == ("train mode",)
    noisy = Dropping(noise=True)
    found = other_situation(noisy, inputs)
    assert found.special == ()
    assert noisy.drop.p == 0.5


def test_a_model_that_fails_with_more_tokens_keeps_its_length():
    class Fixed(deceptive.Stack):
        def forward(self, input_ids, return_dict=True):
            assert input_ids.shape[1] == 12
            return super().forward(input_ids)

    found = other_situation(Fixed(deceptive.DeceptiveConfig()), {"input_ids": torch.arange(24).view(2, 12)})
    assert found.special == ("train mode",)


class Refusing(nn.Module):
    """Runs in no situation of a set."""

    def __init__(self, refused):
        super().__init__()
        self.embed, self.refused = nn.Embedding(64, 8), refused

    def forward(self, input_ids, attention_mask=None):
        special = {"train mode"} if self.training else set()
        special |= {"padding"} if attention_mask is not None else set()
        special |= {"another length"} if input_ids.shape[1] > 12 else set()
        assert not special & self.refused
        return self.embed(input_ids)


LADDER = (
    ("padding", "another length", "train mode"),
    ("padding", "train mode"),
    ("train mode",),
    ("padding", "another length"),
    ("padding",),
    (),
)


@pytest.mark.parametrize("refused", [set(r) for n in range(4) for r in combinations(LADDER[0], n)], ids=sorted)
def test_the_richest_situation_that_a_model_runs_in_is_taken(refused):
    found = other_situation(Refusing(refused).eval(), {"input_ids": torch.arange(24).view(2, 12)})
    assert found.special == next(special for special in LADDER if not refused & set(special))
    assert found.model.training == ("train mode" in found.special)
    assert ("attention_mask" in found.inputs) == ("padding" in found.special)
    assert (found.inputs["input_ids"].shape[1] > 12) == ("another length" in found.special)


class Growing(nn.Module):
    """In train mode its tensors are of a length that only large computers hold."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        found = self.up(x).repeat(600_000, 1) if self.training else self.up(x)
        return self.up(found)


def test_a_situation_of_huge_tensors_is_not_taken():
    assert other_situation(Growing(), {"x": torch.ones(1, 4)}).special == ()
