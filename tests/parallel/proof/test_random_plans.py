"""Random changes of derived plans: those that the proof passes change nothing on a larger instance.

`utils/mutate_plans.py` tries hundreds of them over many model types.
"""

import os
import random

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_on_threads  # noqa: E402
from modular_converter.parallel.proof.prove import (
    derive_model,  # noqa: E402
    refusal,  # noqa: E402
)
from modular_converter.parallel.tiny.build import target_of  # noqa: E402
from tests.parallel.random_plans import deviation, is_same, larger, random_plan  # noqa: E402


SEED = os.environ.get("PLAN_SEED", "0")
NUMBER = 6


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral"])
def test_a_changed_plan_that_passes_changes_nothing_on_a_larger_instance(name):
    derived = derive_model(target_of(name))
    big = larger(derived.target, derived.small, derived.plan)
    assert big is not None
    choice = random.Random(f"{SEED} {name}")
    refused = 0
    for _ in range(NUMBER):
        what, plan = random_plan(derived.plan, derived.small.model, choice)
        if check_on_threads(derived.subject, plan, 2).passed and refusal(derived.variants, plan, 2) is None:
            assert is_same(big, deviation(big, plan)), what
        else:
            refused += 1
    assert refused >= NUMBER // 3


def test_the_larger_instance_tells_wrong_plans():
    derived = derive_model(target_of("gpt2"))
    big = larger(derived.target, derived.small, derived.plan)
    lines = [line for line in str(derived.plan).splitlines() if "mlp.c_proj" not in line]
    found = deviation(big, Plan.parse("\n".join(lines)))
    assert isinstance(found, str) or not is_same(big, found)
    summed = Plan.parse(f"{derived.plan}rule h.*.mlp all_reduce\n")
    assert deviation(big, summed) > 0.1
