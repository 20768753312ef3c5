"""Models whose plans were right on a small instance and failed in use: experts that a small trace does not route to,
layers with one key/value head, kernels that the input predicts.
"""

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.plans.resolve import fitting  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_on_threads  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.proof.subject import subject_of  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("switch_transformers", {"num_layers": 1, "num_decoder_layers": 1, "encoder_sparse_step": 1}),
        ("nllb-moe", {"encoder_layers": 1, "decoder_layers": 1, "encoder_sparse_step": 1, "decoder_sparse_step": 1}),
    ],
)
def test_other_tokens_go_to_other_experts(name, depth):
    target = target_of(name)
    found = derive_model(target, depth | {"num_experts": 4}, ratios=False)
    assert found.verdict.passed
    more = build(target, depth | {"num_experts": 6})
    ids = torch.randint(5, 90, (2, 20), generator=torch.Generator().manual_seed(4))
    inputs = more.inputs | {"input_ids": ids, "decoder_input_ids": ids[:, 3:11]}
    verdict = check_on_threads(subject_of(more.model, inputs, second=False), found.plan, 2)
    assert verdict.passed, verdict.reason


@pytest.mark.slow
def test_a_plan_names_no_kind_of_layer_that_the_model_lacks():
    """The small instance has a dense layer beside each sparse one. The experts do not divide."""
    depth = {"num_layers": 1, "num_decoder_layers": 1, "encoder_sparse_step": 1, "decoder_sparse_step": 1}
    made = build(target_of("switch_transformers"), depth | {"num_experts": 5})
    plan, *_ = select_plan(made.model, None, 2)
    assert plan.rules and fitting(plan, made.model) == plan
    verdict = check_on_threads(subject_of(made.model, made.inputs, second=False), plan, 2)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("univnet", {}),
        pytest.param("embedding_gemma2", {"text_config.intermediate_size": 80}, marks=pytest.mark.slow),
        pytest.param("glm5_next", {"text_config.intermediate_size": 96}, marks=pytest.mark.slow),
    ],
)
def test_the_plan_that_is_chosen_holds(name, sizes):
    made = build(target_of(name), sizes)
    plan, origin, _ = select_plan(made.model, None, 2)
    assert plan.rules and "every layer is of a kind that was proven" in origin
    verdict = check_on_threads(subject_of(made.model, made.inputs, second=False), plan, 2)
    assert verdict.passed, verdict.reason
