"""A sample of `utils/run_families.py`: published classes at configurations of their own give one device's numbers."""

import pytest


pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.parallel.families import VARIATIONS, compared  # noqa: E402


@pytest.mark.parametrize(
    ("family", "number"),
    [
        ("Qwen2ForCausalLM", 0),
        pytest.param("T5ForConditionalGeneration", 1, marks=pytest.mark.slow),
        pytest.param("BertForMaskedLM", 2, marks=pytest.mark.slow),
    ],
)
def test_outputs_and_gradients_are_those_of_one_device(family, number):
    assert compared(family, VARIATIONS[number]) == "equal"


def test_a_difference_would_be_seen(monkeypatch):
    from modular_converter.parallel.plans.plan import Plan
    from tests.parallel import families

    wrong = Plan.parse("plan x\nrule model.layers.*.mlp.up_proj colwise\n")
    monkeypatch.setattr(families, "select_plan", lambda model, plan, size: (wrong, "", False))
    assert compared("Qwen2ForCausalLM", VARIATIONS[1]).startswith("differs: ")
