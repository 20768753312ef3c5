"""Sizes that three ranks do not divide (vocabulary, heads, widths, experts) through `parallelize`: answers, tokens, weights."""

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from modular_converter.parallel.ranks.session import Session  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


@pytest.fixture(scope="module")
def three():
    with Session(("cpu",) * 3, init_method="forkserver", limit_s=120.0) as session:
        session.start()
        yield session


def answers(model, ids):
    with torch.no_grad():
        found = model(ids, output_attentions=True)
        return found.logits, found.attentions, model.generate(ids, max_new_tokens=4, do_sample=False)


EXPERTS = """plan experts
rule model.layers.*.mlp.experts.gate_up_proj grouped_gemm
rule model.layers.*.mlp.experts.down_proj grouped_gemm
rule model.layers.*.mlp.experts ep_dispatch_experts
rule lm_head colwise_gather_output
"""


@pytest.mark.parametrize(
    "name, settings, plan",
    [
        ("gpt2", {}, None),
        pytest.param("mixtral", {"num_key_value_heads": 2}, None, marks=pytest.mark.slow),
        pytest.param("mixtral", {}, EXPERTS, marks=pytest.mark.slow),
    ],
)
def test_the_same_answers_tokens_and_weights(three, name, settings, plan):
    """Two key/value heads of eight have two ranks with copies of the first."""
    small = build(target_of(name, "causal"), {"vocab_size": 157, **settings})
    model, ids = small.model, small.inputs["input_ids"]
    model.set_attn_implementation("eager")
    ids[0, 0], state = 156, {key: value.clone() for key, value in model.state_dict().items()}
    logits, attentions, tokens = answers(model, ids)
    parallelize(model, session=three, plan=plan)
    found = answers(model, ids)
    assert found[0].shape == logits.shape and relative_error(found[0], logits) < 1e-4
    assert all(relative_error(one, other) < 1e-4 for one, other in zip(found[1], attentions, strict=True))
    assert torch.equal(found[2], tokens)
    with pytest.raises(IndexError, match="157 rows, 0 to 156"):
        model(torch.full_like(ids, 157))
    model.cpu()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
