"""Models of layers of their own get a plan that holds, and a reason for what stays whole."""

import copy
import logging

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.choice.select_plan import kept, select_plan  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads  # noqa: E402
from modular_converter.parallel.tiny.inputs import remember_examples  # noqa: E402
from tests.parallel.own_layers import (  # noqa: E402
    WithRoutes,
    WithRoutesToStacks,
    WithShortRows,
    WithTorchEncoder,
    model_of,
)


IDS = torch.randint(5, 90, (2, 40), generator=torch.Generator().manual_seed(4))


class Tagger(torch.nn.Module):
    """Without a configuration; its input has the name of the library's."""

    def __init__(self):
        super().__init__()
        self.words, self.inside, self.tags = (
            torch.nn.Embedding(90, 32),
            torch.nn.Linear(32, 64),
            torch.nn.Linear(64, 3),
        )

    def forward(self, input_ids):
        return self.tags(torch.relu(self.inside(self.words(input_ids))))


def test_a_module_without_a_configuration_that_takes_ids_has_a_plan_for_other_lengths():
    model = Tagger()
    remember_examples(model, {"input_ids": IDS}, False)
    plan, origin, _ = select_plan(model, None, 2)
    assert "from example inputs" in origin and "one token" in origin and kept(model, plan, 2).share < 0.6


@pytest.mark.parametrize(
    ("kind", "most"),
    [(WithShortRows, 0.51), (WithTorchEncoder, 0.67), (WithRoutes, 0.51), (WithRoutesToStacks, 0.51)],
)
def test_the_plan_that_is_chosen_holds(kind, most):
    model = model_of(kind)
    plan, origin, _ = select_plan(model, None, 2)
    assert origin.startswith("the derived plan, verified on 2 ranks of a small instance")
    assert kept(model, plan, 2).share < most
    verdict = check_model_on_threads(copy.deepcopy(model), plan, {"input_ids": IDS}, 2)
    assert verdict.passed, verdict.reason


def test_attention_of_torch_stays_whole_and_the_message_names_the_line(caplog):
    with caplog.at_level(logging.INFO, "modular_converter"):
        plan, *_ = select_plan(model_of(WithTorchEncoder), None, 2)
    assert not [rule for rule in plan.rules if "self_attn" in rule.pattern]
    assert "layers.*.self_attn.in_proj_weight, layers.*.self_attn.out_proj.weight: attention of torch (" in caplog.text
    assert "deceptive.py:" in caplog.text and "write its projections as nn.Linear layers" in caplog.text


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in (WithShortRows, WithTorchEncoder)), WithRoutes]
)
def test_ranks_give_the_same_numbers_with_and_without_gradients(ranks, kind):
    """Without gradients, torch's encoder layer computes in one operator, which would pass by the layers' hooks."""
    model = model_of(kind).requires_grad_(False)
    with torch.no_grad():
        want = copy.deepcopy(model)(IDS)["hidden"]
    parallelize(model, session=ranks)
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with context():
            assert relative_error(model(IDS)["hidden"], want) < 1e-4
    model.cpu()
