"""An answer is kept for the same model alone: each thing that it depends on gives another name, and what is unknown none."""

from __future__ import annotations

import json
import logging
import os
import textwrap

import pytest


pytest.importorskip("transformers")
import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

from modular_converter.check.cache.store import cache_folder  # noqa: E402
from modular_converter.parallel.choice import select_plan  # noqa: E402
from modular_converter.parallel.choice.kept_answers import kept_answer  # noqa: E402
from modular_converter.parallel.choice.skeleton import dismantle, kept_types  # noqa: E402
from modular_converter.parallel.choice.small_instances import unproven_arguments  # noqa: E402
from modular_converter.parallel.engine.base import preflight  # noqa: E402
from tests.parallel.launch import launch  # noqa: E402


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
}


def llama(**more):
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **more})).eval()


class Asked:
    """How often an answer was computed."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        logging.getLogger("modular_converter.parallel.choice.select_plan").warning("the %s was asked", "proof")
        return [f"answer {self.times}"]


@pytest.fixture
def asked(nothing_kept):
    found = Asked()
    assert kept_answer(llama(), "which", found) == ["answer 1"]
    return found


def test_what_was_not_shown_at_first_is_told_again(nothing_kept, caplog):
    def reasoned():
        logging.getLogger("modular_converter.parallel.choice.select_plan").info("layers.0 stays whole")
        return ["answer"]

    with caplog.at_level(logging.WARNING, "modular_converter"):
        kept_answer(llama(), "which", reasoned)
    assert not caplog.records
    with caplog.at_level(logging.INFO, "modular_converter"):
        kept_answer(llama(), "which", reasoned)
    assert [one.getMessage() for one in caplog.records] == ["layers.0 stays whole"]


def test_the_same_model_is_asked_once_and_tells_again_what_was_logged(asked, caplog):
    torch.manual_seed(5)  # other weights
    with caplog.at_level(logging.INFO, "modular_converter"):
        assert kept_answer(llama(), "which", asked) == ["answer 1"]
    assert [one.getMessage() for one in caplog.records] == ["the proof was asked"]


def with_attribute(model):
    model.model.layers[1].mlp.scale = 2.0


def with_other_module(model):
    model.model.norm = torch.nn.LayerNorm(32)


def with_other_function(model):
    model.model.layers[0].mlp.forward = torch.tanh


def tied(model):
    model.lm_head.weight = model.model.embed_tokens.weight


def in_half(model):
    model.to(torch.bfloat16)


def training(model):
    model.train()


def frozen(model):
    model.model.embed_tokens.requires_grad_(False)


@pytest.mark.parametrize(
    "change", [with_attribute, with_other_module, with_other_function, tied, in_half, training, frozen]
)
def test_a_changed_model_is_asked_again(asked, change):
    model = llama()
    change(model)
    assert kept_answer(model, "which", asked) == ["answer 2"]


@pytest.mark.parametrize("more", [{"rms_norm_eps": 1e-3}, {"hidden_act": "gelu"}, {"num_key_value_heads": 2}])
def test_another_configuration_is_asked_again(asked, more):
    assert kept_answer(llama(**more), "which", asked) == ["answer 2"]


def test_another_question_and_another_switch_of_torch_are_asked_again(asked):
    assert kept_answer(llama(), "which for 3", asked) == ["answer 2"]
    torch.use_deterministic_algorithms(True)
    try:
        assert kept_answer(llama(), "which", asked) == ["answer 3"]
    finally:
        torch.use_deterministic_algorithms(False)


def test_patched_code_is_asked_again(asked, monkeypatch):
    with monkeypatch.context() as patch:  # a function of the model's module, as kernels of other packages replace it
        patch.setattr(modeling_llama, "rotate_half", lambda x: x)
        assert kept_answer(llama(), "which", asked) == ["answer 2"]
    with monkeypatch.context() as patch:  # a method
        patch.setattr(modeling_llama.LlamaMLP, "forward", lambda self, x: x)
        assert kept_answer(llama(), "which", asked) == ["answer 3"]
    with monkeypatch.context() as patch:  # a function of torch
        patch.setattr(torch.nn.functional, "silu", lambda input, inplace=False: input)
        assert kept_answer(llama(), "which", asked) == ["answer 4"]
    with monkeypatch.context() as patch:  # an entry of the library's table
        attention = modeling_llama.ALL_ATTENTION_FUNCTIONS
        patch.setitem(attention._global_mapping, "sdpa", lambda *given, **named: None)
        assert kept_answer(llama(), "which", asked) == ["answer 5"]
    assert kept_answer(llama(), "which", asked) == ["answer 1"]


def test_what_cannot_be_written_down_is_not_kept(asked):
    hooked, odd = llama(), llama()
    hooked.model.norm.register_forward_hook(lambda module, given, result: result)
    odd.model.norm.of_my_own = object()
    for model in (hooked, odd):
        first, second = kept_answer(model, "which", asked), kept_answer(model, "which", asked)
        assert first != second


@pytest.mark.parametrize("content", [b"", b"\x00" * 200, b"0" * 64 + b"\n[]"])
def test_a_damaged_entry_counts_as_absent(asked, content):
    folder = os.path.join(cache_folder(), "plans")
    (entry,) = os.listdir(folder)
    with open(os.path.join(folder, entry), "wb") as file:
        file.write(content)
    assert kept_answer(llama(), "which", asked) == ["answer 2"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    place = tmp_path / "file"
    place.write_text("")
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(place))
    assert kept_answer(llama(), "which", Asked()) == ["answer 1"]


def test_a_refusal_is_not_kept(nothing_kept):
    def refused():
        raise select_plan.PlanError("no")

    for _ in range(2):
        with pytest.raises(select_plan.PlanError, match="no"):
            kept_answer(llama(), "which", refused)


def test_a_kept_plan_is_the_proven_one(nothing_kept, monkeypatch):
    plan, origin, _ = select_plan.select_plan(llama(), None, 2)
    arguments = unproven_arguments(llama())
    monkeypatch.setattr(select_plan, "_selected", lambda *given: pytest.fail("it was selected again"))
    again, same, _ = select_plan.select_plan(llama(), None, 2)
    assert (str(again), same, unproven_arguments(llama())) == (str(plan), origin, arguments)
    assert plan == again


@pytest.mark.parametrize("heads", [4, 3])
def test_a_plan_that_fits_is_kept_with_its_units_for_the_same_types(nothing_kept, monkeypatch, heads):
    model = llama(hidden_size=8 * heads, num_attention_heads=heads, num_key_value_heads=heads)
    plan = select_plan.select_plan(model, None, 2)[0]
    skeletons = [dismantle(model, kept_types(model, kind))[0] for kind in (None, torch.bfloat16)]
    fitting = preflight.check_fit(skeletons[0], plan, 2)
    assert preflight.kept_fit(model, skeletons[0], plan, 2) == fitting
    monkeypatch.setattr(preflight, "check_fit", lambda *given: pytest.fail("it was tried again"))
    assert preflight.kept_fit(model, skeletons[0], plan, 2) == fitting
    for skeleton, size in ((skeletons[1], 2), (skeletons[0], 1)):
        with pytest.raises(pytest.fail.Exception, match="tried again"):
            preflight.kept_fit(model, skeleton, plan, size)


OWN = """
    import sys
    import torch
    import helper
    from transformers import LlamaConfig, LlamaForCausalLM
    from modular_converter.parallel.choice.kept_answers import kept_answer

    class Own(LlamaForCausalLM):
        def forward(self, *given, **named):
            return helper.scaled(super().forward(*given, **named))

    model = Own(LlamaConfig(**{sizes}))
    print(kept_answer(model, "which", lambda: [sys.argv[1]]))
"""


@pytest.mark.slow
def test_an_edit_of_the_users_own_files_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "script.py").write_text(textwrap.dedent(OWN).replace("{sizes}", json.dumps(SIZES)))

    def answer(name: str, body: str) -> str:
        (tmp_path / "helper.py").write_text(f"def scaled(x):\n    {body}\n    return x\n")
        done = launch(1, tmp_path / "script.py", name)
        assert done.code == 0, done.errors
        return done.output.strip()

    assert answer("first", "x = x") == "['first']"
    assert answer("second", "x = x") == "['first']"
    assert answer("third", "from functools import reduce") == "['third']"
