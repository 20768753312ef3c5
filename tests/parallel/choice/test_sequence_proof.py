"""The proof of parts of sequences on a small instance: results without finite numbers prove nothing."""

import math

import pytest


pytest.importorskip("transformers")
from transformers.models.llama.modeling_llama import LlamaRMSNorm  # noqa: E402

from modular_converter.parallel.choice.sequence_parallel import difference, zone_of  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.plans.resolve import resolve  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from tests.parallel.sequence_script import PLAN  # noqa: E402


OWN = LlamaRMSNorm.forward


def on_parts(factor):
    """A norm that gives so many times its numbers where it has half of the twelve tokens."""
    return lambda self, x: OWN(self, x) * (factor if x.shape[1] == 6 else 1)


@pytest.mark.parametrize(
    "factor, said", [(1, ""), (1.01, "output 0 differs by 0."), (math.nan, "output 0 differs by inf")]
)
def test_outputs_on_parts_must_be_the_same_numbers(monkeypatch, factor, said):
    model = build(target_of("llama", "causal"), {"vocab_size": 160}).model
    plan = Plan.parse(PLAN)
    monkeypatch.setattr(LlamaRMSNorm, "forward", on_parts(factor))
    found = difference(model, plan, zone_of(model, resolve(plan, model)))
    assert found.startswith(said) and bool(found) == bool(said)
