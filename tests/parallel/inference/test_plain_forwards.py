"""The forms of layers for inference give the results of whole layers, in all uses of their weights."""

import dataclasses

import pytest
import torch
from torch import nn


pytest.importorskip("transformers")
from transformers.pytorch_utils import Conv1D  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.base.watched_state import WatchedState  # noqa: E402
from modular_converter.parallel.inference.plain_forwards import make_plain, put_on_modules  # noqa: E402
from modular_converter.parallel.plans.plan import Plan, PlanRule  # noqa: E402
from modular_converter.parallel.plans.resolve import Piece, Resolution  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from modular_converter.parallel.shard.apply import Applied  # noqa: E402
from modular_converter.parallel.shard.collectives import FakeGroup  # noqa: E402
from modular_converter.parallel.shard.role_parameters import make_parameter  # noqa: E402
from modular_converter.parallel.styles.layout import VOCABULARY  # noqa: E402
from tests.parallel.layers import PLAN, Layers  # noqa: E402


IDS = torch.arange(10).view(2, 5)


@pytest.mark.parametrize("latent", ["shard", "rowwise"])
def test_every_way_to_use_a_weight(ranks, latent):
    plan = Plan.parse(PLAN)
    rules = tuple(PlanRule("latent", latent, 1) if rule.pattern == "latent" else rule for rule in plan.rules)
    model = Layers().eval()
    with torch.no_grad():
        want = model(IDS)
    parallelize(model, plan=dataclasses.replace(plan, rules=rules), session=ranks)
    got = model(IDS)
    model.cpu()
    errors = {name: relative_error(got[name], want[name]) for name in want}
    assert max(errors.values()) < 1e-4, errors
    assert model.head.weight is model.words.weight


class Moved(Conv1D):
    """A subclass that adds to its parent's forward."""

    def forward(self, x):
        return super().forward(x) + 1


class Several(nn.Module):
    """Its first output is summed."""

    def forward(self, x):
        return x, len(x), True


class Sums(nn.Module):
    """Modules whose outputs are shares, and one whose weights are rows besides; on one rank they are whole."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8, bias=False)
        self.both, self.moved, self.passed = nn.Linear(16, 8), Moved(8, 16), Several()

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        passed, rows, is_first = self.passed(hidden)  # first: the others must find what is summed here as it was
        return {
            "passed": passed.sum(-1) * rows if is_first else x,
            **{name: getattr(self, name)(hidden) for name in ("down", "both", "moved")},
        }


SUMS = """plan sums
rule up colwise
rule down.weight shard dim=1
rule down all_reduce
rule both rowwise
rule both all_reduce
rule moved rowwise dim=0
rule passed all_reduce
"""


def test_an_output_that_is_summed_of_every_kind_of_module(ranks):
    model, x = Sums().eval(), torch.randn(3, 8)
    with torch.no_grad():
        want = model(x)
    want["both"] = 2 * want["both"]  # the rows are summed, and then the equal outputs of two ranks
    parallelize(model, plan=SUMS, session=ranks)
    got = model(x)
    model.cpu()
    errors = {name: relative_error(got[name], want[name]) for name in want}
    assert max(errors.values()) < 1e-4, errors


def test_a_module_with_two_names_keeps_the_role_of_its_weight_and_is_not_walked_at_each_call():
    model, group = nn.Module(), FakeGroup(2)
    model.words = model.again = nn.Embedding(6, 8)
    whole = model.words.weight
    role = make_parameter(whole.detach(), whole, frozenset({VOCABULARY}), group, (0, 3, 6))
    model.words._parameters["weight"] = role
    piece = Piece(frozenset({VOCABULARY}), 0, (), "words")
    resolution = Resolution({"words.weight": piece, "again.weight": piece}, (), ())
    make_plain(Applied(model, resolution, group), group)
    assert model.words.weight is role and type(model.words._parameters["weight"]) is nn.Parameter
    assert WatchedState(model).inside and not WatchedState(model, left_out=put_on_modules(model)).inside
