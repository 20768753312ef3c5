"""A plan applied in place and undone."""

import torch
from torch import nn

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.on_threads import check_model_on_threads


class Shared(nn.Module):
    """One module under two names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.second = self.first

    def forward(self, x):
        return self.second(self.first(x))


def test_a_module_with_two_names_is_cut_once():
    plan = Plan.parse("plan x\nrule first.0 colwise\nrule first.2 rowwise\n")
    verdict = check_model_on_threads(Shared(), plan, {"x": torch.randn(3, 8)}, 2)
    assert verdict.passed, verdict
