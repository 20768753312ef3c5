"""Under torchrun: weights that code reads outside of a forward are whole or refused, and optimizers hold what a step changes."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


NUMBERS = ("late", "all", "norms", "cut", "product", "rows", "layer", "tensor", "numbers")


@pytest.mark.slow
@pytest.mark.parametrize("layouts, processes", [(("tp2",), 2), (("fsdp2",), 2), (("fsdp2.tp2",), 4)])
def test_penalties_and_late_optimizers_are_those_of_one_process(layouts, processes):
    found = line_of(processes, "tests/parallel/weights_script.py", *layouts)
    uneven, published, parts, entries = (found.pop(name) for name in ("uneven", "published", "parts", "entries"))
    assert all(equal and "the optimizer was made before parallelize" in told for equal, told in entries), entries
    if parts is not None:
        equal, far, left, alone = parts
        assert equal and far < 1e-5 and left == "DTensor"
        assert "Linear was called by itself, and data ranks average gradients of its weights" in alone
    if published is not None:
        assert published == {"names": True, "class": ["GPTNeoXForCausalLM"], "said": True}
    for run, one in found.items():
        assert not {name: one[name] for name in NUMBERS if one[name] >= 1e-5}, run
        assert "a sharded model cannot be copied" in one["copied"], run
        places = ["layers.0.mlp.up_proj", "layers.0.mlp", "norm.weight"]
        for place, text in zip(places, one["replaced"], strict=True):
            assert f"modules or weights of model.{place} were set, added or deleted after parallelize" in text, run
        assert "add the whole number, penalty.full_tensor()" in one["mixed"]
        assert "torch.autograd.grad of model.embed" in one.get("grad", "torch.autograd.grad of model.embed"), run
        assert "backward(inputs=) of model.embed" in one.get("inputs", "backward(inputs=) of model.embed"), run
        assert not {name: far for name, far in one["drawn"].items() if far >= 1e-5}, run
        apart, counted, between = one["frozen"]
        assert apart < 1e-5
        if run != "tp2 True":
            assert "scale_grad_by_freq=True of an Embedding of 64 rows: data ranks" in counted
        assert between < 1e-5 and one["late and inside"] < 1e-5
        assert "data ranks gather some anew: write to them after the backward" in one["between"]
    if uneven is not None:
        assert uneven["counts"][0] == uneven["counts"][1]
        assert "model.layers.0.self_attn.q_proj.weight is this process's share, and state_dict" in uneven["state"]
        assert "self_attn.q_proj.weight is this process's share, and state_dict" in uneven["state of a part"]
        assert "is [64, 24] in the model, and [64, 32] in the state" in uneven["other shapes"]
        assert "take load_full_state_dict(state)" in uneven["load"] and uneven["frozen"]
        assert "sparse" in uneven["sparse"] and "no error" not in uneven["sparse"]
        for said, text in zip(
            ("a parametrization of a Linear", "was deleted or replaced"), uneven["normed"], strict=True
        ):
            assert said in text
        assert uneven["shape"] == [24, 24] and "is this process's share" in uneven["read"]


@pytest.mark.slow
def test_a_model_for_inference_shows_whole_weights_to_code_outside_of_forwards():
    found = line_of(2, "tests/parallel/inference_script.py", "llama", "gpt2", "mixtral", "own")
    assert found["fused"] == {"llama": [], "gpt2": [], "mixtral": [True], "own": []}
    for name, answers in found["answers"].items():
        assert {use: one for use, one in answers.items() if one != "equal"} == {}, name
    assert "writing would change a copy" in found["said"]["write"]
    assert "cannot be copied" in found["said"]["copy"] and "cannot be pickled" in found["said"]["pickle"]
    assert "and processes [1] have not within" in found["said"]["alone"]
    assert found["said"]["by themselves"] == "equal"
    for left in found["said"]["left"]:
        assert left["block"] == left["again"] == "equal" and left["attentions"]
        assert "layers.0.attn.last was stored by a forward and is this process's share, [2, 2, 9, 9]" in left["stored"]
        assert "layers.1.mlp.up has a hook, which would get this process's share" in left["layer"]
        assert "a hook on a LlamaAttention would get attention weights of this process's heads" in left["heads"]
    trained = found["said"]["trained"]
    assert trained["read"] and trained["own"] and trained["type"]
    assert trained["before"] == trained["after"] == "equal"
    assert "split_size was set, but processes share out the sizes" in trained["changed"]


def test_an_overflow_in_an_uneven_share_of_one_process_lets_all_skip_the_step():
    found = line_of(2, "tests/parallel/scaler_script.py")
    assert found["plain"] and found["scales"] and found["weights"] < 1e-4
    assert max(found["lists"].values()) < 1e-5, found["lists"]
    assert [empty for empty, *_ in found["largest"]] == [False, True]
    for _, refused, far, norm in found["largest"]:
        assert far < 1e-5 < norm
        assert "a norm of kind -inf cannot be put together from shares" in refused


def test_code_that_counts_and_writes_entries_in_two_processes():
    for layout, found in line_of(2, "tests/parallel/counts_script.py").items():
        ours, theirs = found["numbers"]
        assert ours == pytest.approx(theirs, rel=1e-5), layout
        assert found["first"] < 1e-5 and found["written"] < 1e-5 and found["views"] < 1e-4, layout
        assert ("take weight.register_post_accumulate_grad_hook" in found["hook"]) == (layout != "tp2")
        assert "weights were written between a forward and its backward" in found["between"], layout
        assert all("take weight.full_tensor() for the numbers" in one for one in found["arrays"])
        assert "take its full_state_dict()" in found["state"] and "All keys matched" in found["whole"]
        assert found["own tensors"] < 1e-5 and found["halves"] < 1e-5, layout
        assert all("must be the same on all" in one for one in found["other tensors"][:3]), found["other tensors"]
        assert all("of your own that gets a gradient or is written" in one for one in found["other tensors"][3:])
        assert found["copied"] == [0, [2] * 4, [[0, 1, 2, 3]] * 6], layout
        assert "my own" in found["own"] or layout != "tp2"


def test_a_module_of_its_own_beside_a_pipeline_may_be_parametrized():
    from modular_converter.parallel.engine.group.torch_patches import _refuse_parametrization

    pipeline = object()  # which is no module
    assert _refuse_parametrization([pipeline], lambda *given: given, "module", "weight") == ("module", "weight")
