"""The lean forms of layers give what the whole layers give, however the weights are used."""

import dataclasses

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.plans.plan import Plan, Rule  # noqa: E402
from modular_converter.parallel.proof.compare import relative_error  # noqa: E402
from tests.parallel.layers import PLAN, Layers  # noqa: E402


IDS = torch.arange(10).view(2, 5)


@pytest.mark.parametrize("latent", ["shard", "rowwise"])
def test_every_way_to_use_a_weight(ranks, latent):
    plan = Plan.parse(PLAN)
    rules = tuple(Rule("latent", latent, 1) if rule.pattern == "latent" else rule for rule in plan.rules)
    model = Layers().eval()
    with torch.no_grad():
        want = model(IDS)
    parallelize(model, plan=dataclasses.replace(plan, rules=rules), session=ranks)
    got = model(IDS)
    model.cpu()
    errors = {name: relative_error(got[name], want[name]) for name in want}
    assert max(errors.values()) < 1e-5, errors
    assert model.head.weight is model.words.weight
