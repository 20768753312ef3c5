"""Products of data and tensor ranks: training in a layout equals that of one process, and continues in another layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch


pytest.importorskip("transformers")

from tests.parallel.launch import ROOT, line_of, lines_of  # noqa: E402


def test_a_mixed_layout_trains_as_one_process():
    found = line_of(4, "tests/parallel/products_script.py", "fsdp2.tp2")
    assert found["worst"] < 1e-12 and found["said"] == 0.0 and "DTensor" in found["kinds"]


@pytest.fixture(scope="module")
def found():
    """What four processes find about a model of the tests' own, with a plan that is given."""
    return line_of(4, "tests/parallel/products_script.py")


@pytest.mark.slow
def test_every_layout_trains_as_one_process(found):
    layouts = found["layouts"].values()
    assert len(layouts) == 6 and all(one["worst"] < 1e-12 for one in layouts)
    assert all(one["said"] == 0.0 for one in layouts)  # torch puts each DTensor together rightly
    synced = {layout for layout, one in found["layouts"].items() if one["synced"]}
    assert synced == {"fsdp2.tp2", "ddp2.fsdp2", "zero 2", "host"}  # `generate` gathers weights from all data ranks
    assert {kind for one in layouts for kind in one["kinds"]} == {"DTensor", "Parameter"}


@pytest.mark.slow
def test_the_optimizers_state_is_shared_out_while_weights_stay_gathered(found):
    accumulated = found["accumulated"]
    assert accumulated["worst"] < 1e-12
    assert 0.24 < accumulated["state"] < 0.35  # a quarter, and rows that do not divide by four
    between, after = accumulated["weights"]
    assert between == 1.0 and 0.24 < after < 0.35


@pytest.mark.slow
def test_a_checkpoint_is_resumed_in_another_layout(found):
    resumed = found["resumed"]
    assert resumed.pop("folders") == ["step-00000002"]
    assert resumed.pop("earlier") == ["step-00000001"]  # what was just written stays
    assert resumed.pop("notes").startswith("ApplyError: notes= must be JSON values")
    assert len(resumed) == 4 and max(resumed.values()) < 1e-10  # of the next ten losses and norms


@pytest.mark.slow
def test_data_ranks_may_use_other_experts_of_a_layer(found):
    assert found["routed"] < 1e-12


@pytest.mark.slow
def test_an_unsharded_model_has_its_own_forward_again(found):
    assert found["again"] < 1e-12


@pytest.mark.slow
def test_wrong_products_are_told_before_the_first_step(found):
    assert "8 processes, and there are 4: start 8, or take one of fsdp4" in found["too many"]
    assert found["no data"] == "ApplyError: offload= needs a layout with fsdp, such as fsdp2; this one is tp4"
    assert found["both"].startswith("ApplyError: recompute and compile together need whole layers")
    said, kind = found["skipping"]
    assert said.startswith("ApplyError: layerdrop=0.1: data ranks would skip different layers") and kind == "Blocks"
    assert found["seeds"].startswith("ApplyError: words.weight has other values on process 2")


@pytest.fixture(scope="module")
def staged():
    """What four processes find about a model of the library in layouts with stages."""
    return line_of(4, "tests/parallel/stages_script.py")


@pytest.mark.slow
def test_a_checkpoint_of_stages_is_resumed_in_another_layout(staged):
    resumed = staged["resumed"]
    said = resumed.pop("other model")
    assert "belongs to another model: model.model.layers.4.self_attn.q_proj.weight" in said
    assert resumed.keys() == {"pp2.tp2 pp4", "pp2.tp2 fsdp4", "fsdp4 pp2.fsdp2"}
    assert max(resumed.values()) < 1e-5  # of the next two losses and norms, in float32


@pytest.mark.slow
def test_stages_compute_in_another_type(staged):
    half = {layout: torch.tensor(steps) for layout, steps in staged["half"].items()}
    exact, replicas = half.pop("float32"), half["ddp4"]
    assert half["pp2.ddp2"][0, 0] == replicas[0, 0] != exact[0, 0]
    assert half["pp2.tp2"][0, 0] != exact[0, 0]
    for steps in half.values():
        torch.testing.assert_close(steps, replicas, rtol=1e-2, atol=0)


@pytest.mark.slow
def test_a_result_of_nothing_but_nan_ends_all_stages(staged):
    assert len(staged["broken"]) == 4
    assert all("ApplyError: ['logits'] of the output is all NaN: it uses val" in said for said in staged["broken"])


@pytest.mark.slow
def test_stages_are_given_the_same_batch(staged):
    assert "divide the same layers, stages or sequences and were given different" in staged["batches"]


OTHER_SHARES = "over processes that hold other shares of the model: give it the dimension for data"
WRONG = {
    "replicas of DTensors": "takes no DTensors: give parallelize layout='ddp2.tp4'",
    **dict.fromkeys(("replicas over all", "replicas over a mesh", "replicas over a group"), OTHER_SHARES),
    **dict.fromkeys(("replicas of a layer", "ZeRO 1 over all"), OTHER_SHARES),
    **dict.fromkeys(("fully_shard over tensors", "fully_shard over all", "fully_shard of layers"), OTHER_SHARES),
    "a norm of shares behind it": "norm of layers.0.bare, of its gradient or of their state: a process has its share",
    "ZeRO 1 of DTensors": "ZeroRedundancyOptimizer takes no DTensors: give parallelize a layout with fsdp",
    "twice": "sharded already",
    "a part again": "sharded already: call parallelize once, for the whole model",
    "around": "0 is sharded already",
    "wrapped": "the model is in DistributedDataParallel: give parallelize its .module",
    "without data": "words.weight has no data (meta device)",
    "other layouts": "process 1 was given layout=fsdp2.tp2",
    "other models": "process 1 has another model than process 0, from weight (9, 8) on",
    "stages without chunks": "layout tp2.pp2 needs training=Training(chunks=8)",
    "chunks without stages": "chunks=, schedule= and loss= are for stages: take a layout with pp, or leave them out of ddp4",
    "a divided backward": "schedule='ZBVZeroBubble' in a layout: choose from GPipe, 1F1B",
    "compiled stages": "compile= does not go with stages (tp2.pp2): leave it out",
    "stages of no library": "has no configuration of transformers",
    "other batches": "divide the same layers, stages or sequences and were given different batches",
}


@pytest.mark.slow
def test_wrappers_of_torch_are_refused_over_other_shares_alone(found):
    said = found["wrong"]
    right = {"fully_shard over data", "ZeRO 1 over data", "other batches of data ranks"}
    assert said.keys() == WRONG.keys() | right
    assert {name for name, text in said.items() if text == "no error: None"} == right
    assert not [(name, said[name]) for name, text in WRONG.items() if not said[name].startswith("ApplyError: ")]
    assert not [(name, said[name]) for name, text in WRONG.items() if text not in said[name]]
    assert found["zero 1"] < 1e-12


@pytest.mark.slow
def test_a_kill_leaves_the_last_complete_checkpoint(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "tests/parallel/kill_script.py", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["step"] for one in found] == [2, 2, 3], done.stderr
    assert all(one["same"] for one in found)
    assert [len(one["names"]) for one in found] == [2, 2, 2]


# Packed, tied and dropped weights of a model of the library, in stages, too; and experts.
@pytest.mark.parametrize(
    "processes, kind, layouts",
    [
        pytest.param(4, "gpt2", "fsdp2.tp2,pp2.fsdp2,pp2.tp2,fsdp2.tp2+sp", marks=pytest.mark.slow),
        (2, "mixtral", "ep2"),
    ],
)
def test_models_of_the_library_train_as_one_process(processes, kind, layouts):
    script = ROOT / "utils/prove_training.py"
    found = lines_of(processes, script, "--worker", f"--types={kind}", f"--layouts={layouts}")
    assert ",".join(one["layout"] for one in found) == layouts
    assert all(one["worst"] < 1e-6 for one in found)
