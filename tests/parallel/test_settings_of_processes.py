"""Under torchrun: settings that processes change between calls must be the same where they compute one call together."""

import json

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import launch, line_of, lines_of  # noqa: E402


@pytest.mark.parametrize("layout", ["tp2", "fsdp2"])
def test_what_a_process_alone_has_set_is_told_to_all_before_the_call(layout):
    found = line_of(2, "tests/parallel/settings_script.py", layout)
    different, built, caught = found.pop("different"), found.pop("built"), found.pop("caught")
    (zero, zero_after), (one, one_after) = found.pop("method")
    others = "process 1 calls generate, and process 0 forward", "process 0 calls forward, and process 1 generate"
    assert all(any(other in said for other in others) for said in (zero, one)) and zero_after == one_after == "", zero
    for said, difference in found.pop("heads"):
        assert difference < 1e-5
        assert (
            said == "no error" if layout == "fsdp2" else "of a key/value cache: processes share out its heads" in said
        )
    assert max(found.pop("layer")) < 1e-5
    for (sampled, own, first), noise, difference in found.pop("drawn"):
        assert sampled == (first if layout == "tp2" else own) and difference < 1e-5
        assert (
            noise == "" if layout == "fsdp2" else "drew others: call torch.manual_seed with the same number" in noise
        )
    for hooked in found.pop("hooked"):
        assert hooked == "" if layout == "fsdp2" else "layers.1.self_attn.q_proj has a hook, which would get" in hooked
    if layout == "tp2":
        for resized, undone in found.pop("resized"):
            assert "self_attn.head_dim was set, but processes share out the sizes" in resized and undone == ""
    for name, told in found.items():
        for first, *refused, undone, both, both_undone in told:
            assert len(refused) == 2 and first == undone == both == both_undone == "", (name, told)
            assert all("process 1 has set " in one and "process 0 has not" in one for one in refused), (name, told)
    assert "model.layers.1.training to True" in found["mode inside"][0][1]
    assert "config.output_hidden_states to True" in found["config"][0][1]
    assert "torch's dtype to torch.float64" in found["type"][0][1]
    assert "scaling to 2.0" in different[1] and "process 0 has set others" in different[1]
    assert "model.layers.0.mlp.training True" in built[1] or "model.layers.0.mlp.training False" in built[1]
    # Process 0 begins the call that process 1 has left out; the next call, of both, goes on.
    (_, before, _, after), (_, own, next_call, _) = caught
    assert own == "caught" and "process 1 alone was refused something" in before == next_call and after == ""
    assert "an array of a weight" in before


@pytest.mark.parametrize("layout", ["tp2", pytest.param("fsdp2", marks=pytest.mark.slow)])
def test_a_process_that_has_left_a_forward_alone_ends_the_others(layout):
    found = launch(2, "tests/parallel/left_script.py", layout)
    told = {one["process"]: one for one in map(json.loads, found.output.splitlines()) if "process" in one}
    assert all(told[rank]["within"] for rank in (0, 1)), found.errors[-2000:]
    assert all("process 1 was refused something alone" in told[rank]["said"] for rank in (0, 1)), told
    assert all("ValueError: of one process" in told[rank]["said"] for rank in (0, 1)), told


@pytest.mark.parametrize(
    ("count", "case", "layout"),
    [
        (2, "fails", "Pipeline"),
        (2, "gone", "tp2"),
        pytest.param(2, "ends", "tp2", marks=pytest.mark.slow),
        pytest.param(2, "state", "fsdp2", marks=pytest.mark.slow),
        pytest.param(4, "fails", "pp2.tp2", marks=pytest.mark.slow),
        pytest.param(4, "fails", "pp2.fsdp2", marks=pytest.mark.slow),
    ],
)
def test_processes_that_wait_for_one_that_has_failed_or_ended_are_let_go_with_words(count, case, layout):
    found = launch(count, "tests/parallel/let_go_script.py", case, layout)
    told = {one["process"]: one for one in map(json.loads, found.output.splitlines()) if "process" in one}
    has_ended = case in ("ends", "gone")
    assert set(told) == set(range(count - has_ended)), found.errors[-2000:]
    assert all(one["within"] for one in told.values()), told
    why = f"process {count - 1} has ended" if has_ended else "ValueError: of one process"
    for rank, one in told.items():
        others = one["told"] if rank < count - 1 else one["told"][1:] if case == "fails" else []
        assert all(why in text and text.startswith("ApplyError: process ") for text in others), told


def test_a_step_of_stages_is_refused_on_all_processes_or_on_none():
    told = line_of(2, "tests/parallel/alone_in_stages_script.py")
    assert all("the model's own loss needs labels=" in one for one in told["labels"])
    assert "process 1 refuses this call" in told["labels"][0] and told["right"] == ["", ""]
    assert all("training to " in one for one in told["mode"]), told["mode"]
    assert "a pipeline cannot be copied or pickled" in told["copied"][0]
    assert "has no state_dict, since each process has its own stages alone" in told["missing"][0]
    assert "load what full_state_dict() gives" in told["unshard"][0]
    assert told["entries"] == [22688, 22688] and told["whole"] == [21, 21] and sum(told["optimized"]) == 21
    for name in ("norm", "vector", "clipped"):
        assert all("is a weight of another process's stage" in one for one in told[name]), told[name]
    assert all("takes no PipelineInLayout" in one for name in ("wrapped", "compiled") for one in told[name])
    assert all("is no module and no list of modules" in one for one in told["sharded"])
    assert all(
        "has made a step of its optimizer since the last call, and process" in one for one in told["skipped"]
    ) or all("has made none since the last call, and process" in one for one in told["skipped"])
    assert told["caught up"] == told["stepped"] == ["", ""]
    # A scaler that skips a step on one process alone.
    assert all(" since the last call, and process " in one for one in told["scaled alone"]), told["scaled alone"]
    assert all("behind a step of an optimizer" in one for one in told["scaled alone, then norm"])
    assert told["scaled, caught up"] == told["scaled, then norm"] == told["scaled"] == ["", ""]
    for name in ("batch", "forward"):
        assert all("were given different batches" in one for one in told[name]), told[name]
    assert all("has a hook on its gradient" in one for one in told["hooked"])
    assert told["after"] == told["unhooked"] == ["", ""]


# In a layout whose stages several processes divide, others wait for the hook's process inside of the stage.
@pytest.mark.parametrize(
    ("count", "cases"),
    [
        (2, ("Pipeline:1F1B",)),
        pytest.param(2, ("pp2:1F1B", "Pipeline:ZBVZeroBubble", "Pipeline:Interleaved1F1B"), marks=pytest.mark.slow),
        pytest.param(4, ("pp2.tp2:1F1B", "pp2.fsdp2:1F1B"), marks=pytest.mark.slow),
    ],
)
def test_an_error_of_one_process_in_a_step_of_stages_is_told_to_all(count, cases):
    for told in lines_of(count, "tests/parallel/failed_in_stages_script.py", *cases):
        names = [name for name in told if name != "before" and not name.endswith("after")]
        assert all(not any(told[name]) for name in told if name not in names), told
        assert names == ["loss"] or len(names) == 5
        for name in names:
            others = [one for one in told[name] if "failed in this call, which all compute together: Value" in one]
            assert len(others) == count - 1, (name, told[name])
            assert all(one.startswith("ValueError: ") and one.endswith(": of one process") for one in told[name])
