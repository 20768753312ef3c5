"""The plan that is chosen holds where attention takes another path: sparse blocks, one key/value head, left padding."""

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_on_threads  # noqa: E402
from modular_converter.parallel.proof.subject import subject_of  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


PADDED = 3
SELF = "encoder.layer.*.attention.self"
BY_HEADS = f"""plan x
rule {SELF}.query colwise
rule {SELF}.key colwise
rule {SELF}.value colwise
rule encoder.layer.*.attention.output.dense rowwise
attribute {SELF}:num_attention_heads
attribute {SELF}:all_head_size
"""


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def ids(tokens):
    return torch.randint(5, 90, (2, tokens), generator=torch.Generator().manual_seed(4))


def mask_of(tokens):
    """A mask whose first row is padded on the left."""
    mask = torch.ones(2, tokens, dtype=torch.long)
    mask[0, :PADDED] = 0
    return mask


def chosen(made):
    plan, origin, _ = select_plan(made.model, None, 2)
    assert plan.rules and origin.startswith("the derived plan, verified on 2 ranks of a small instance")
    return plan, origin


def holds(made, plan, inputs):
    verdict = check_on_threads(subject_of(made.model, inputs, second=False), plan, 2)
    return verdict.passed or verdict.reason


@pytest.mark.parametrize(
    ("name", "decoder"),
    [("big_bird", {}), slow("bigbird_pegasus", {"decoder_input_ids": ids(7)})],
)
def test_more_blocks_than_the_attention_reads(name, decoder):
    """A row of blocks reads at most eleven; in train mode, each head draws some of them at random."""
    made = build(target_of(name), {"block_size": 4})
    plan, origin = chosen(made)
    assert "705 tokens" in origin
    tokens = 13 * 4
    inputs = {"input_ids": ids(tokens), "attention_mask": mask_of(tokens)} | decoder
    assert holds(made, plan, inputs) is True
    for module in made.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    made.model.train()
    assert holds(made, plan, inputs) is True and made.model.encoder.attention_type == "block_sparse"
    if name == "big_bird":  # the heads of another rank would draw other blocks
        assert "differs by" in holds(made, Plan.parse(BY_HEADS), {"input_ids": ids(tokens)})


@pytest.mark.slow
def test_a_language_model_with_one_key_value_head_behind_images():
    made = build(target_of("paligemma"), {"text_config.num_key_value_heads": 1})
    plan, _ = chosen(made)
    assert any(rule.pattern.startswith("language_model.layers.*.mlp") for rule in plan.rules)
    padded = {name: made.inputs[name] for name in made.inputs if name != "attention_mask"}
    padded["input_ids"] = torch.cat([ids(PADDED), made.inputs["input_ids"]], dim=1)
    if "token_type_ids" in padded:
        padded["token_type_ids"] = torch.nn.functional.pad(padded["token_type_ids"], (PADDED, 0))
    padded["attention_mask"] = mask_of(padded["input_ids"].shape[1])
    assert holds(made, plan, padded) is True


@pytest.mark.slow
@pytest.mark.parametrize(("name", "decoder"), [("longformer", {}), ("led", {"decoder_input_ids": ids(7)})])
def test_windows_with_padding_on_the_left(name, decoder):
    made = build(target_of(name))
    plan, _ = chosen(made)
    padded = {"input_ids": ids(24), "attention_mask": mask_of(24)} | decoder
    to_all = torch.zeros(2, 24, dtype=torch.long)
    to_all[0, 6] = to_all[1, 0] = 1
    for inputs in (padded, padded | {"global_attention_mask": to_all}):
        assert holds(made, plan, inputs) is True
