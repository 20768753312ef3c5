"""Classes whose own plan shards the head alone get a derived plan, which leaves about half of the weights on a rank."""

import logging
import re

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.choice.select_plan import kept, select_plan  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("gpt_oss.modeling_gpt_oss.GptOssForCausalLM", 0.52),
        slow("diffllama.modeling_diffllama.DiffLlamaForCausalLM", 0.52),
        slow("bamba.modeling_bamba.BambaForCausalLM", 0.6),
        slow("falcon_h1.modeling_falcon_h1.FalconH1ForCausalLM", 0.56),
        slow("qwen3_vl.modeling_qwen3_vl.Qwen3VLForConditionalGeneration", 0.62),
    ],
)
def test_the_derived_plan_is_chosen_and_the_shares_are_logged(path, most, caplog):
    model = build(target_of(f"transformers.models.{path}")).model
    with caplog.at_level(logging.INFO, "modular_converter"):
        plan, said, _ = select_plan(model, None, 2)
    assert said.startswith("the derived plan, verified on 2 ranks of a small instance")
    assert re.search(r"the plan in its classes leaves [89]\d\.\d% of the weights on each of 2 ranks", said)
    share = kept(model, plan, 2).share
    assert share < most
    assert f"each of 2 ranks keeps {100 * share:.1f} % of the weights" in caplog.text
    assert not [record for record in caplog.records if "keeps" in record.message and record.levelno > logging.INFO]
