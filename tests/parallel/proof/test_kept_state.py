"""What a model keeps from one call to the next, wherever it keeps it, does not reach the ranks from the whole model's run."""

from __future__ import annotations

import itertools
import types

import pytest
import torch
from torch import nn

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from tests.parallel.proof.remembering import PLACES, InConfig, InLocal, InQueue


RIGHT = "plan pair\nrule up colwise\nrule down rowwise\n"
INPUTS = {"x": torch.linspace(-1, 1, 24).view(3, 8)}


class Remembering(nn.Module):
    """Adds a number that its first call computes from a weight."""

    table: dict = {}

    def __init__(self, place):
        super().__init__()
        self.place, self.held = place, place.made()
        self.config = types.SimpleNamespace()
        self.up, self.down, self.extra = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 8)

    def forward(self, x):
        if self.place.get(self) is None:
            self.place.put(self, self.extra(torch.ones(8)).mean().detach())
        return self.down(torch.relu(self.up(x))) + self.place.get(self)


UNCOPIED = (InQueue, InLocal)


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place not in UNCOPIED], ids=lambda place: place.__name__
)
def test_a_number_is_computed_anew_on_each_rank(place):
    torch.manual_seed(3)
    model = Remembering(place())
    right = check_model_on_threads(model, Plan.parse(RIGHT), INPUTS, 2)
    assert right.passed, right.reason
    wrong = check_model_on_threads(model, Plan.parse(f"{RIGHT}rule extra colwise\n"), INPUTS, 2)
    assert not wrong.passed and wrong.layer == "the outputs"
    assert place().get(model) is None


@pytest.mark.parametrize("place", UNCOPIED, ids=lambda place: place.__name__)
def test_a_model_with_an_object_that_cannot_be_copied_is_refused_by_name(place):
    with pytest.raises(PlanError, match="Remembering cannot be copied: TypeError: cannot pickle '_.*' object"):
        check_model_on_threads(Remembering(place()), Plan.parse(RIGHT), INPUTS, 2)


def test_an_object_that_cannot_be_set_back_is_named():
    model = Remembering(InConfig())
    model.calls = itertools.count()
    verdict = check_model_on_threads(model, Plan.parse(RIGHT), INPUTS, 2)
    assert any("keeps in an object of count" in gap for gap in verdict.evidence.not_covered)
